"""How every kernel is compiled, started on threads, and thrown away when it is stale."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedns.numerics.cache import alone_with, choose_cache_folder

choose_cache_folder(Path(__file__).parent / "cpu")  # before numba, which reads the setting while it is imported

import numba  # noqa: E402
from numba import njit  # noqa: E402
from numba.core.compiler_lock import global_compiler_lock  # noqa: E402

from fedns.numerics import parallel  # noqa: E402


def compiler(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that compiles a function when it is first called and caches what it compiled, one process at a time.

    Processes that start together, sites or workers, would each compile the same kernels. And numba's index of a cache is
    read, changed and written: two processes at once could make it name the wrong file.
    """

    options["no_cfunc_wrapper"] = True  # C calls none of them

    def decorate(function: Callable[..., Any]) -> Any:
        kernel = njit(cache=True, nogil=True, **options)(function)
        compile_here, lock = kernel.compile, f"{function.__module__}.{function.__qualname__}"

        def compile_alone(signature: Any) -> Any:
            # The compiler's own lock first: a thread that has it may come here for a kernel that its kernel calls.
            with global_compiler_lock, alone_with(lock, Path(kernel.stats.cache_path)):
                return compile_here(signature)

        kernel.compile = compile_alone
        return kernel

    return decorate


# A product may be added without being rounded first; nothing else about IEEE arithmetic is given up. Sums are made in the
# order of the source: one of the compiler's choice would depend on what else a kernel does, and on what is in its cache.
FUSED = frozenset({"contract"})
jit = compiler(error_model="numpy", fastmath=set(FUSED))

# The same over all cores: for loops over parts of the work, each of which is a kernel of the kind above.
parallel_jit = compiler(error_model="numpy", fastmath=set(FUSED), parallel=True)

# Nothing is fused. It has to be said: numba compiles a function with the options of whichever kernel calls it first.
exact_jit = compiler(error_model="numpy", fastmath=False)

_MOST_THREADS: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
_last = threading.local()  # the number of threads that a thread last launched with: numba keeps one for each
_one_launch = threading.Lock()  # not every threading layer of numba may be entered twice


def on_threads(kernel: Any, *arguments: Any, parts: int = _MOST_THREADS) -> None:
    """Call a kernel that was compiled for threads, with as many as are allowed and find work.

    Compiled threads start in microseconds, where Python's take a tenth of a millisecond. A single part wakes nobody: on a
    busy machine another thread may not run for milliseconds, and the end of a launch waits for all of them.
    """
    threads = max(1, min(parallel.thread_count(), _MOST_THREADS, parts))
    with _one_launch:
        if getattr(_last, "threads", 0) != threads:
            numba.set_num_threads(threads)
            _last.threads = threads
        kernel(*arguments)


def _discard_stale_kernels() -> None:
    """Delete cached kernels older than any kernel source: numba looks at a kernel's own file, not at what it calls.

    Formulas, which may live anywhere, are not among them: what they are is part of a kernel's type.
    """
    folder = Path(__file__).parent
    newest = max(source.stat().st_mtime for source in [*folder.glob("*.py"), *folder.glob("cpu/**/*.py")])
    for compiled in folder.rglob("__pycache__/*.nb?"):
        with contextlib.suppress(OSError):  # another process may have been faster, or the folder be read-only
            if compiled.stat().st_mtime < newest:
                compiled.unlink()


_discard_stale_kernels()
