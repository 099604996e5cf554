"""A FedNS round on a table of several gigabytes in a process that may hold far less, against merely reading the file.

The file is written to `--folder`, read in turns by the plain reader and by rounds, and removed. The limit is that of
`ulimit -d`, the memory that a process may ask for; behind both readers the system lets go of the file's pages, so that
every read is one from the disk. A smaller table, cut the same way, is run with and without the limit: the bits must agree.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import fedns
from fedns.numerics import memory, streaming
from fedns.numerics.parallel import cut

COLUMNS, CLIENTS, SKETCH_SIZE, ROUNDS = 54, 200, 20, 4
MOST_OVER_READING = 1.3
_CHUNK = 1 << 18  # rows


def write(path: Path, rows: int) -> None:
    """Random doubles, so that no narrower type holds them."""
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (rows, COLUMNS)})
        for start in range(0, rows, _CHUNK):
            (random.random((min(_CHUNK, rows - start), COLUMNS)) - 0.5).tofile(file)


def shards_of(path: Path, *, mapped: bool = True) -> fedns.Shards:
    features = np.load(path, mmap_mode="r" if mapped else None)
    rows = len(features)
    targets = np.where(np.random.default_rng(1).random(rows) < 0.5, -1.0, 1.0)
    return fedns.split(features, targets, CLIENTS, "contiguous")


def rounds(shards: fedns.Shards) -> fedns.History:
    return fedns.simulate(fedns.FedNS(fedns.SJLT(SKETCH_SIZE)), fedns.Problem(), shards, rounds=ROUNDS)


def seconds_to_read(shards: fedns.Shards) -> float:
    """The same reads with nothing done to what is read."""
    started = time.perf_counter()
    for _ in streaming.in_memory(shards.rows, cut(shards.starts, shards.stops)):
        pass
    return time.perf_counter() - started


def same_bits(folder: Path, rows: int) -> bool:
    """Whether a smaller table gives the same bits from its file and in memory."""
    path = folder / "small.npy"
    write(path, rows)
    plain = rounds(shards_of(path, mapped=False))
    with memory.limited(rows * COLUMNS):  # an eighth of what it takes
        stored = rounds(shards_of(path))
    path.unlink()
    return bool(np.array_equal(plain.coefficients, stored.coefficients)) and plain.ledger == stored.ledger


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=8.0, help="of the table")
    parser.add_argument("--limit", type=float, default=2.0, help="gigabytes that the process may hold")
    parser.add_argument("--folder", type=Path, default=None, help="where the table is written; the system's for such files")
    options = parser.parse_args()
    rows = int(options.gigabytes * 1e9) // (8 * COLUMNS)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        agree = same_bits(folder, rows // 50)
        write(folder / "table.npy", rows)
        resource.setrlimit(resource.RLIMIT_DATA, (int(options.limit * 1e9), resource.RLIM_INFINITY))
        with memory.limited(None):
            shards = shards_of(folder / "table.npy")
            assert streaming.streamed(shards.rows)
            reads = [seconds_to_read(shards)]
            history = rounds(shards)
            reads.append(seconds_to_read(shards))
    steps = np.diff([record.seconds for record in history.records])
    ratio = float(np.median(steps) / np.median(reads))
    size = rows * COLUMNS * 8 / 1e9
    print(f"{rows:,} x {COLUMNS}, {size:.1f} GB on disk, {CLIENTS} clients, SJLT {SKETCH_SIZE}; limit {options.limit:g} GB")
    print(f"reading the file: {', '.join(f'{s:.2f}' for s in reads)} s ({size / min(reads):.2f} GB/s)")
    print(f"rounds: {', '.join(f'{s:.2f}' for s in steps)} s; a round is {ratio:.2f} reads, {MOST_OVER_READING} are allowed")
    print(f"largest resident size: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    print(f"the same bits as in memory, on a fiftieth of the rows: {agree}")
    if not agree or ratio > MOST_OVER_READING:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
