"""Draw small defects of an area's sources with a seed, and see whether the tests that mirror them notice each.

python -m benchmarks.mutation guard --count 25 --seed 1 --out guard.jsonl          # --resume goes on after an interruption
python -m benchmarks.mutation guard --show 25                                      # only show what would be drawn

Everything happens in a copy of this tree (--copy), with its compiled kernels; the tree itself is only read. First the tests
of the area run once with every line watched (kept in the copy; a test file that changed is run again, all are when a source
did). Then, a defect at a time, the tests that run its line: those that passed, quick files first, until one fails. A defect
that they do not notice meets the rest of their files before it counts as survived. Each is a line of JSON in --out.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks.mutation.areas import AREAS
from benchmarks.mutation.operators import Mutant, mutants
from benchmarks.mutation.scratch import Covered, Scratch

ROOT = Path(__file__).parents[2]


def drawn(files: list[str], root: Path, seed: int) -> Iterator[Mutant]:
    """Defects of these files in a random order: kinds of defect take turns, and no line has two."""
    by_kind: dict[str, list[Mutant]] = defaultdict(list)
    for file in files:
        for mutant in mutants(file, (root / file).read_text(encoding="utf-8")):
            by_kind[mutant.operator].append(mutant)
    order = random.Random(seed)
    for kind in by_kind.values():
        order.shuffle(kind)
    used: set[tuple[str, int]] = set()
    kinds = sorted(by_kind)
    while kinds:
        order.shuffle(kinds)
        for name in list(kinds):
            candidates = by_kind[name]
            while candidates:
                mutant = candidates.pop()
                if (mutant.file, mutant.line) not in used and _is_program(mutant, root):
                    used.add((mutant.file, mutant.line))
                    yield mutant
                    break
            if not candidates:
                kinds.remove(name)


def _is_program(mutant: Mutant, root: Path) -> bool:
    source = (root / mutant.file).read_bytes()
    try:
        return ast.dump(ast.parse(mutant.applied(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def outcome(mutant: Mutant, scratch: Scratch, covered: Covered) -> dict[str, object]:
    """Whether a test noticed, and which."""
    first = covered.tests_of(mutant)
    if not first:
        return {"noticed": None, "survived": "no test of the area runs this line", "tests": 0}
    files = {test.split("::")[0] for test in first}
    rest = [test for test in covered.in_order(covered.passed) if test.split("::")[0] in files and test not in set(first)]
    source = (scratch.tree / mutant.file).read_bytes()
    start = time.monotonic()
    with scratch.changed(mutant.file, mutant.applied(source)):
        noticed = scratch.first_failure(first, covered.limit_of(first))
        if noticed is None and rest:
            noticed = scratch.first_failure(rest, covered.limit_of(rest))
    seconds = round(time.monotonic() - start, 1)
    told = {"noticed": noticed, "tests": len(first), "seconds": seconds}
    return told if noticed else {**told, "survived": f"{len(first)} tests run this line, and none fails"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("area", choices=list(AREAS))
    parser.add_argument("--count", type=int, default=25, help="how many defects are planted")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--resume", action="store_true", help="leave out those that are in --out, and append")
    parser.add_argument(
        "--copy", type=Path, help="the folder of the copy; one for each tree in the folder of temporary files"
    )
    parser.add_argument("--show", type=int, metavar="N", help="show the first N that would be drawn, and stop")
    given = parser.parse_args()
    area = AREAS[given.area]
    files = area.source_files(ROOT)
    if given.show:
        for _, mutant in zip(range(given.show), drawn(files, ROOT, given.seed), strict=False):
            print(f"{mutant.file}:{mutant.line} {mutant.operator}: {mutant.before!r} -> {mutant.after!r}")
        return
    if given.out.exists() and not given.resume:
        sys.exit(f"{given.out} exists: --resume goes on with it")
    done = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    known = {(entry["file"], entry["line"], entry["after"]) for entry in done}
    scratch = Scratch(ROOT, given.copy)
    covered = scratch.covered(given.area, files, area.test_files(ROOT))
    planted = list(zip(range(given.count), drawn(files, scratch.tree, given.seed), strict=False))
    with given.out.open("a", encoding="utf-8") as output:
        for number, mutant in planted:
            if (mutant.file, mutant.line, mutant.after) in known:
                continue
            place = {name: value for name, value in asdict(mutant).items() if name in _SHOWN}
            entry = {"area": given.area, "seed": given.seed, **place, **outcome(mutant, scratch, covered)}
            done.append(entry)
            print(f"{number + 1}/{given.count}", json.dumps(entry, ensure_ascii=False), flush=True)
            print(json.dumps(entry, ensure_ascii=False), file=output, flush=True)
    counts = Counter(bool(entry["noticed"]) for entry in done)
    print(f"{given.area}: {counts[True]} of {len(done)} noticed")


_SHOWN = ("file", "line", "operator", "before", "after")

if __name__ == "__main__":
    main()
