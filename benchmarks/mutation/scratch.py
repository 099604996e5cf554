"""A copy of the tree in which defects are planted, and runs of its tests."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.mutation.covering import MAP
from benchmarks.mutation.operators import Mutant
from benchmarks.mutation.tracing import CHILDREN, FILES

_SECONDS_PER_SECOND = 10.0  # a run may take so many times as long as its tests took: other work may have come
_LEAST_SECONDS = 120.0
_NOTICED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)


class Covered:
    """Which tests of an area run which lines, and how long they take."""

    def __init__(self, by_test: dict[str, dict[str, Any]], modules: dict[str, dict[str, list[int]]]) -> None:
        self.seconds = {test: float(found["seconds"]) for test, found in by_test.items()}
        self.passed = [test for test, found in by_test.items() if found["passed"]]
        self._lines: dict[str, dict[str, set[int]]] = {}
        for test in self.passed:
            lines: dict[str, set[int]] = defaultdict(set)
            for source in (by_test[test]["lines"], modules.get(test.split("::")[0], {})):
                for file, numbers in source.items():
                    lines[file] |= set(numbers)
            self._lines[test] = lines

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that run its line. What runs on import is in every test's way: those that use the file come first."""
        span = set(range(mutant.line, mutant.last_line + 1)) | {mutant.line}
        if mutant.on_import:
            users = self.in_order([test for test in self.passed if self._lines[test].get(mutant.file)])
            return users + self.in_order([test for test in self.passed if test not in set(users)])
        return self.in_order([test for test in self.passed if span & self._lines[test].get(mutant.file, set())])

    def in_order(self, tests: Sequence[str]) -> list[str]:
        """Files one after the other, those of quick tests first, and in a file the quick tests first."""
        files = defaultdict(list)
        for test in tests:
            files[test.split("::")[0]].append(self.seconds[test])
        mean = {file: sum(seconds) / len(seconds) for file, seconds in files.items()}
        return sorted(tests, key=lambda test: (mean[test.split("::")[0]], test.split("::")[0], self.seconds[test]))

    def limit_of(self, tests: Sequence[str]) -> float:
        return _LEAST_SECONDS + _SECONDS_PER_SECOND * sum(self.seconds[test] for test in tests)


class Scratch:
    """A copy, made anew each time but for what is known of its tests."""

    def __init__(self, root: Path, folder: Path | None = None) -> None:
        mark = hashlib.sha256(str(root).encode()).hexdigest()[:8]
        self.folder = (folder or Path(tempfile.gettempdir()) / f"fedns-mutation-{mark}").resolve()
        self.tree = self.folder / "tree"
        shutil.rmtree(self.tree, ignore_errors=True)
        tracked = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            check=True,
        )
        kernels = [path.relative_to(root).as_posix() for path in (root / "src").rglob("*.nb?")]
        for name in [*tracked.stdout.decode().split("\0"), *kernels]:
            if name and (root / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, self.tree / name)  # with its times, which compiled kernels are kept by

    @contextmanager
    def changed(self, file: str, content: bytes) -> Iterator[None]:
        """The copy with another content of this file."""
        path = self.tree / file
        before, times = path.read_bytes(), path.stat()
        path.write_bytes(content)
        try:
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def first_failure(self, tests: Sequence[str], limit_seconds: float) -> str | None:
        """The first of these tests that fails; None where all pass."""
        status, output = self._pytest(["-x", *tests], limit_seconds)
        if status == 0:
            return None
        if status is None:
            return "the time limit"
        named = _NOTICED.search(output)
        if named is None:
            raise SystemExit(f"pytest ended with status {status}, and names no test:\n{output[-3000:]}")
        return named.group(1)

    def covered(self, area: str, sources: list[str], test_files: list[str]) -> Covered:
        """What the area's tests run, from the runs that are kept where nothing changed since."""
        kept_in = self.folder / f"{area}.json"
        digests = {file: _digest(self.tree, [file, *sources]) for file in test_files}
        kept: dict[str, Any] = json.loads(kept_in.read_text(encoding="utf-8")) if kept_in.exists() else {}
        for number, file in enumerate(test_files, 1):
            if kept.get(file, {}).get("digest") == digests[file]:
                continue
            found = self._watched(file, sources)
            failed = [test for test, result in found["tests"].items() if not result["passed"]]
            seconds = sum(result["seconds"] for result in found["tests"].values())
            print(f"{number}/{len(test_files)} {file}: {len(found['tests'])} tests, {seconds:.0f} s", flush=True)
            if failed:
                print(f"  left out, for they do not pass as it is: {', '.join(failed)}", flush=True)
            kept[file] = {"digest": digests[file], **found}
            kept_in.write_text(json.dumps(kept), encoding="utf-8")
        every = [kept[file] for file in test_files]
        return Covered(_merged(found["tests"] for found in every), _merged(found["modules"] for found in every))

    def _watched(self, file: str, sources: list[str]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            files, result = Path(folder) / "files", Path(folder) / "map.json"
            files.write_text("\n".join(str(self.tree / source) for source in sources), encoding="utf-8")
            extra = {FILES: str(files), CHILDREN: str(Path(folder) / "children"), MAP: str(result)}
            status, output = self._pytest(["-p", "benchmarks.mutation.covering", file], 3600.0, extra)
            if status not in (0, 1, 5) or not result.exists():  # 5: this machine has no test to run there
                raise SystemExit(f"pytest ended with status {status} on {file}:\n{output[-3000:]}")
            found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
            return found

    def _pytest(
        self, arguments: list[str], limit_seconds: float, extra: dict[str, str] | None = None
    ) -> tuple[int | None, str]:
        path = [str(self.tree / "src"), str(self.tree)]
        path += [str(self.tree / "benchmarks/mutation/children")] if extra else []
        settings = {"PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", *arguments]
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                command, cwd=self.tree, env={**os.environ, **settings, **(extra or {})}, text=True,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                status: int | None = process.wait(limit_seconds)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            output.seek(0)
            return status, output.read()


def _digest(tree: Path, files: Iterable[str]) -> str:
    joined = hashlib.sha256()
    for file in files:
        joined.update((tree / file).read_bytes())
    return joined.hexdigest()


def _merged(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}
