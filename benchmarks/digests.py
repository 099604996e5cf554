"""Digests of what every method computes and sends, to see whether a change of the code changed any bit.

python benchmarks/digests.py --save before.json
python benchmarks/digests.py --compare before.json

--engines adds every method over both engines, as processes of their own (some minutes).
Names that may move are in benchmarks/names.py, so the same script runs on an older version:
PYTHONPATH=OLDER/src python benchmarks/digests.py.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fit_digests import Digest, of_fits, short
from names import named

import fedns

METHODS = named("METHODS")
ROUNDS, CLIENTS, SEED = 5, 10, 7
ENGINES = ("flower", "nvflare")
FITS = ("study:", "estimator:", "files:", "sites:")
SKETCHED = ("fedns", "fedndes", "newtonsketch")
RECORDED = ("round", "exchanges", "uplink_bytes", "downlink_bytes", "objective", "gradient_norm")
LEDGER = ("round", "exchange", "direction", "kind", "fields", "messages", "bytes")
# Settings that change what is computed or sent, as the command line writes them.
VARIANTS = (
    "fednewton:line_search=aggregate",
    "fednewton:line_search=local",
    "fedns:line_search=aggregate",
    "fedns:line_search=local",
    "fedns:aggregation=sum",
    "fedns:growth=log2",
    "fedndes:line_search=local",
    "fedavg:batch_size=8",
    "fedavg:learning_rate=0.1;local_steps=7",
    "fedprox:batch_size=8",
    "gd:step_size=0.5",
    "giant:line_search=none",
    "localnewton:finish=giant;finish_after=2",
    "distributednewton:trim=0.2",
    "fednl:compressor=top8",
    "fednl:option=1",
    "fednl:line_search=aggregate",
    "fednl:variant=pp",
    "newtonzero:line_search=aggregate",
    "qfednew:bits=5",
    "shed:residual=midpoint;line_search=none",
)


def of_run(coefficients: bytes, ledger: list[dict[str, Any]]) -> Digest:
    """The digests of one run, and its bytes to tell a changed message from a changed count."""
    entries = [[list(entry[name]) if name == "fields" else entry[name] for name in LEDGER] for entry in ledger]
    sent = {way: sum(entry["bytes"] for entry in ledger if entry["direction"] == way) for way in ("uplink", "downlink")}
    return {"coefficients": short(coefficients), "ledger": short(json.dumps(entries).encode()), **sent}


def simulated(
    method: fedns.Algorithm, shards: fedns.Shards, intercept: bool = False, wire: str = "float64", strength: float = 1e-3
) -> Digest:
    loss = fedns.Logistic() if set(shards.targets) == {-1.0, 1.0} else fedns.Squared()
    problem = fedns.Problem(loss, penalty=fedns.Ridge(strength), intercept=intercept)
    history = fedns.simulate(method, problem, shards, rounds=ROUNDS, seed=SEED, wire=wire)
    return of_run(history.coefficients.tobytes(), [vars(entry) for entry in history.ledger])


def embedded(name: str, clients: int = CLIENTS, dtype: str = "float64") -> fedns.Shards:
    shards = fedns.split_dataset(fedns.load(name, dtype=dtype), clients, "iid", SEED)
    return fedns.scale(shards, "maxabs")[0]


def in_the_simulator() -> Iterator[tuple[str, Digest]]:
    for name in ("breast_cancer", "digits"):
        shards = embedded(name)
        for intercept in (False, True):
            for wire in ("float64", "float32"):
                where = f"{name} {wire} {'intercept' if intercept else 'no intercept'}"
                for method in METHODS:
                    yield f"{where}: {method}", simulated(METHODS[method](), shards, intercept, wire)
        for sketch in fedns.SKETCHES:
            for method in SKETCHED:
                sketched = METHODS[method](fedns.SKETCHES[sketch](20))  # type: ignore[call-arg]
                yield f"{name}: {method} with {sketch}", simulated(sketched, shards, intercept=True)
    for method in METHODS:
        yield f"diabetes: {method}", simulated(METHODS[method](), embedded("diabetes"))
        yield (
            f"digits, 30 clients, single precision rows: {method}",
            simulated(METHODS[method](), embedded("digits", 30, "float32")),
        )
    for method in SKETCHED:
        few_rows = METHODS[method](fedns.SRHT(8))  # type: ignore[call-arg]
        yield f"digits, sketches with fewer rows than columns: {method}", simulated(few_rows, embedded("digits", 3))


def on_the_command_line() -> Iterator[tuple[str, Digest]]:
    with tempfile.TemporaryDirectory() as folder:
        settings = ["--clients", "7", "--scale", "maxabs", "--rounds", str(ROUNDS), "--trials", "2"]
        command("compare", "breast_cancer", "--methods", ",".join(VARIANTS), *settings, "--quiet", "--out", folder)
        lines = (Path(folder) / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    rounds: dict[str, list[Any]] = {}
    for values in map(json.loads, lines):
        rounds.setdefault(values["method"], []).append([values[name] for name in RECORDED])
    for method, rows in rounds.items():
        yield f"compare: {method}", {"rounds": short(json.dumps(rows).encode())}


def over_engines() -> Iterator[tuple[str, Digest]]:
    for engine in ENGINES:
        for wire in ("float64", "float32"):
            with tempfile.TemporaryDirectory() as parent:
                folder = Path(parent) / "federation"
                settings = ["--engine", engine, "--methods", "all", "--dataset", "breast_cancer", "--wire", wire]
                command("demo-federation", *settings, "--rounds", "3", "--quiet", "--out", str(folder))
                for path in sorted(folder.glob("coordinator/run-*/history.jsonl")):
                    head = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
                    coefficients = json.dumps(head["coefficients"]).encode()  # all digits of each: as good as the bytes
                    yield f"{engine} {wire}: {head['method']}", of_run(coefficients, head["ledger"])


def command(*arguments: str) -> None:
    """Run a command of this version; a comparison whose methods ran out of rounds ends with 1, which is no failure."""
    done = subprocess.run([sys.executable, "-m", "fedns.cli", *arguments], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or "Traceback" in done.stderr:  # else what stands there is advice
        sys.exit(f"fedns {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")


def differences(before: dict[str, Digest], after: dict[str, Digest]) -> list[str]:
    """A line for every digest that is not the same, and for every case that only one side has."""
    lines = []
    for case in sorted(before.keys() | after.keys()):
        old, new = before.get(case), after.get(case)
        if old is None or new is None:
            lines.append(f"{case}: only {'after' if old is None else 'before'}")
            continue
        names = [name for name in (old | new) if name != "values" and old.get(name) != new.get(name)]
        changed = [f"{name} {old.get(name)} -> {new.get(name)}" for name in names]
        if changed:
            lines.append(f"{case}: {', '.join(changed)}{distance(old, new)}")
    return lines


def distance(before: Digest, after: Digest) -> str:
    """How far the numbers themselves are apart, where both sides have kept them."""
    old, new = before.get("values"), after.get("values")
    if not old or not new or len(old) != len(new):
        return ""
    pairs = [(a, b) for a, b in zip(old, new, strict=True) if a != b and not (a != a and b != b)]
    if any(a is None or b is None or not math.isfinite(a - b) for a, b in pairs):
        return ", some numbers are on one side alone"
    return f", numbers differ by at most {max((abs(a - b) / (1.0 + abs(a)) for a, b in pairs), default=0.0):.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", action="store_true", help="also over both engines, as processes of their own")
    parser.add_argument("--fits", action="store_true", help="fits alone, without the methods")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the digests to this file")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="print which digests differ from this file's")
    options = parser.parse_args()
    found = dict(of_fits())
    if not options.fits:
        found |= dict(in_the_simulator()) | dict(on_the_command_line())
    if options.engines:
        found |= dict(over_engines())
    if options.save:
        options.save.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if not options.compare:
        for case, digest in found.items():
            print(f"{case}: {', '.join(f'{name} {value}' for name, value in digest.items() if name != 'values')}")
        return
    kept = json.loads(options.compare.read_text(encoding="utf-8"))
    if options.fits:
        kept = {case: digest for case, digest in kept.items() if case.startswith(FITS)}
    if not options.engines:
        kept = {case: digest for case, digest in kept.items() if not case.startswith(ENGINES)}
    lines = differences(kept, found)
    print("\n".join(lines) if lines else f"all {len(found)} cases are the same")
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
