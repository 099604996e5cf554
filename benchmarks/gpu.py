"""A GPU's passes against one read of its memory: rows on the device, times of the device and with the copy to the host.

python benchmarks/gpu.py [--processor]    with --processor also the same runs on the processor
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
from cupyx import empty_pinned

import fedns
from fedns.core.shards import Shards
from fedns.numerics.gpu.backend import GpuBackend
from fedns.numerics.gpu.resident import VARIABLE
from fedns.numerics.rng import stream_keys

SHAPES = {
    # name: rows, columns, clients, sketch size, allowed milliseconds for SJLT and SRHT
    "SUSY shape": (5_000_000, 18, 1000, 10, 0.27, 0.45),
    "covtype shape": (581_012, 54, 200, 20, 0.12, 0.20),
}


def device_ms(action: Callable[[], Any], repetitions: int = 30) -> float:
    """The median time between two events around the action."""
    action()
    times = []
    for _ in range(repetitions):
        start, stop = cp.cuda.Event(), cp.cuda.Event()
        cp.cuda.Device().synchronize()
        start.record()
        action()
        stop.record()
        stop.synchronize()
        times.append(cp.cuda.get_elapsed_time(start, stop))
    return float(np.median(times))


def wall_ms(action: Callable[[], Any], repetitions: int = 30) -> float:
    action()
    times = []
    for _ in range(repetitions):
        cp.cuda.Device().synchronize()
        started = time.perf_counter()
        action()
        cp.cuda.Device().synchronize()
        times.append(time.perf_counter() - started)
    return 1e3 * float(np.median(times))


def kernel_ms(action: Callable[[], Any], repetitions: int = 10) -> float:
    """The action's kernels alone: the device is kept busy while they are queued, so that it never waits for the host."""
    action()
    busy = cp.ones((6144, 6144))

    def queued() -> float:
        start, stop = cp.cuda.Event(), cp.cuda.Event()
        busy @ busy
        start.record()
        for _ in range(repetitions):
            action()
        stop.record()
        stop.synchronize()
        return float(cp.cuda.get_elapsed_time(start, stop)) / repetitions

    return min(queued() for _ in range(7))


def synthetic(rows: int, columns: int, clients: int) -> Shards:
    random = np.random.default_rng(0)
    features = random.standard_normal((rows, columns))
    targets = np.where(random.random(rows) < 0.5, -1.0, 1.0)
    return Shards.from_arrays(features, targets, np.diff(np.linspace(0, rows, clients + 1).astype(np.int64)))


def sketch_passes(name: str, shards: Shards, size: int, allowed: tuple[float, float]) -> None:
    backend, loss = GpuBackend(), fedns.Logistic()
    w = np.full(shards.num_columns, 0.01)
    keys = stream_keys(0, "sketch", 1, np.arange(shards.num_clients))
    flat = cp.asarray(shards.rows.flat)  # type: ignore[union-attr]
    out = cp.empty_like(flat)
    copied = kernel_ms(lambda: cp.copyto(out, flat)) / 2
    print(f"{name}: {shards.rows.shape}, {shards.rows.nbytes / 1e6:.0f} MB; half a copy {copied:.3f} ms")
    for sketch, most in zip((fedns.SJLT(size), fedns.SRHT(size), fedns.Gaussian(size)), (*allowed, np.nan), strict=True):
        plan = sketch.plan(shards.sizes)

        def there(plan: Any = plan) -> Any:
            return backend.gradient_and_sketch_there(loss, shards, w, plan, keys)

        def whole(plan: Any = plan) -> Any:
            return backend.gradient_and_sketch(loss, shards, w, plan, keys)

        print(f"  {sketch.name} {size}: kernels {kernel_ms(there):.3f} ms, at most {most:g}", end="; ")
        print(f"a pass {device_ms(there):.3f} ms, with the copy to the host {wall_ms(whole):.3f} ms", flush=True)
    print(f"  value and gradient, with the copy {wall_ms(lambda: backend.value_and_gradient(loss, shards, w)):.3f} ms")


def streaming(gigabytes: float, room: float) -> None:
    """A pass over rows of which a part has room on the device, beside the copy of them by itself."""
    rows, columns, clients = int(gigabytes * 1e9 / 144), 18, 1000
    features = np.resize(np.random.default_rng(0).standard_normal((1 << 20, columns)), (rows, columns))
    targets = np.where(features[:, 0] > 0, 1.0, -1.0)
    sizes = np.diff(np.linspace(0, rows, clients + 1).astype(np.int64))
    keys, w = stream_keys(0, "sketch", 1, np.arange(clients)), np.full(columns, 0.01)
    total, part = features.nbytes + targets.nbytes, empty_pinned(1 << 25, np.uint8)
    there = cp.empty(part.size, np.uint8)

    def copies() -> None:
        for _ in range(total // part.size):
            there.data.copy_from_host_async(part.ctypes.data, part.size, cp.cuda.get_current_stream())

    print(f"{total / 1e9:.2f} GB of rows: the copy to the device by itself {wall_ms(copies, 3):.1f} ms", flush=True)
    found = []
    for held in (room, 2 * gigabytes):
        os.environ[VARIABLE] = f"{held}"
        shards = Shards.from_arrays(features, targets.copy(), sizes)  # which the device has not seen
        for sketch in (fedns.SJLT(10), fedns.SRHT(10)):
            plan = sketch.plan(shards.sizes)

            def a_pass(shards: Shards = shards, plan: Any = plan) -> Any:
                return GpuBackend().gradient_and_sketch(fedns.Logistic(), shards, w, plan, keys)

            found.append(np.concatenate([part.reshape(-1) for part in a_pass()]))
            print(f"  room for {held:g} GB, {sketch.name} 10: a pass {wall_ms(a_pass, 5):.1f} ms", flush=True)
    os.environ.pop(VARIABLE)
    same = all(np.array_equal(one, two) for one, two in zip(found[:2], found[2:], strict=True))
    print(f"  the bits are {'the same' if same else 'OTHERS'} with both", flush=True)


def hessians(folder: Path) -> None:
    shards = fedns.split(*fedns.load("w8a"), clients=142, how="iid", seed=0)
    backend, w = GpuBackend(), np.zeros(shards.num_columns)
    milliseconds = kernel_ms(lambda: backend.gradient_and_hessian_there(fedns.Logistic(), shards, w))
    whole = wall_ms(lambda: backend.gradient_and_hessian(fedns.Logistic(), shards, w), 5)
    print(
        f"w8a, Hessians 142 x 300 x 300: kernels {milliseconds:.3f} ms (at most 1), with the copy to the host {whole:.1f} ms"
    )


def whole_runs(devices: list[str]) -> None:
    for name, clients, size in (("phishing", 40, 17), ("covtype", 200, 20), ("w8a", 142, 60)):
        shards = fedns.split(*fedns.load(name), clients=clients, how="iid", seed=0)
        if name == "covtype":
            shards = fedns.scale(shards, "maxabs")[0]
        for method in (fedns.FedNS(fedns.SJLT(size)), fedns.FedNS(fedns.SRHT(size)), fedns.FedNewton()):
            found = {}
            for device in devices:
                optimum = fedns.pooled_optimum(fedns.Problem(), shards)
                for _ in range(3):
                    history = fedns.simulate(
                        method, fedns.Problem(), shards, rounds=40, tol=1e-10, optimum=optimum, device=device
                    )
                found[device] = history
            label = f"{name}, {type(method).__name__} {getattr(getattr(method, 'sketch', None), 'name', '')}"
            for device, history in found.items():
                print(f"{label} to 1e-10, {device}: {1e3 * history.seconds[-1]:.1f} ms, {len(history.records) - 1} rounds")
            if len(found) > 1:
                a, b = (history.coefficients for history in found.values())
                print(f"  coefficients differ by {np.abs(a - b).max() / np.abs(b).max():.1e} of the largest", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processor", action="store_true", help="the whole runs on the processor too")
    options = parser.parse_args()
    print(cp.cuda.runtime.getDeviceProperties(0)["name"].decode(), "CuPy", cp.__version__)
    for name, (rows, columns, clients, size, *allowed) in SHAPES.items():
        sketch_passes(name, synthetic(rows, columns, clients), size, (allowed[0], allowed[1]))
    streaming(4.0, 1.0)
    folder = os.environ.get("FEDNS_DATA")
    if not folder:
        print("FEDNS_DATA is not set: real data are left out")
        return
    raw = fedns.split(*fedns.load("covtype"), clients=200, how="iid", seed=0)
    sketch_passes("covtype's own values", raw.narrowed, 20, (0.12, 0.20))
    hessians(Path(folder))
    whole_runs(["cuda", "cpu"] if options.processor else ["cuda"])


if __name__ == "__main__":
    main()
