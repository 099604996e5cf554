"""Golden outputs: what every command says, its exit status, and the text of the files it writes.

python benchmarks/golden.py --save before.json
python benchmarks/golden.py --compare before.json

Everything is on embedded data in a temporary folder. The reproduction takes about a minute, all the rest about two;
--only and --without choose steps by words in their names. --engine NAME adds a federation of three processes over it.
Only the command line is used, so the same script runs on an older version: PYTHONPATH=OLDER/src python benchmarks/golden.py.

What a round took is made the same everywhere by a clock that counts its readings; paths, times, dates, the version and
random keys are masked. Everything else is compared to the byte, pictures by their digests, pages by their text.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import html
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Outcome = dict[str, Any]
CLOCK = "import itertools, time\ncounted = itertools.count()\ntime.perf_counter = lambda: next(counted) / 1000\n"
LONGEST_SECONDS = 600
SHOWN_LINES = 40
COMMANDS = (
    ["datasets"], ["methods"], ["compare"], ["run"], ["reproduce"], ["site"], ["coordinate"], ["init-federation"], ["renew"],
    ["revoke"], ["demo-federation"], ["doctor"], ["check"], ["fit"], ["predict"], ["what-left"], ["data"], ["data", "fetch"],
    ["study"], ["study", "init"], ["study", "example"],
)  # fmt: skip
SETTINGS = """dataset = "breast_cancer"
methods = ["fedns", "fednewton"]
scale = "standardise"
clients = 4
rounds = 6
strength = 1e-3
intercept = true
out = "stated"
"""
SWEEP = SETTINGS.replace('out = "stated"', 'out = "swept"').replace(
    "clients = 4", 'clients = [3, 4]\nsplit = ["iid", "sorted"]'
)
BINOMIAL = '[outcome]\nevent = ["yes"]\nnon_event = ["no"]\n'
SURVIVAL = '[outcome]\nstatus = "died"\nevent = ["1"]\nnon_event = ["0"]\nbaseline = [2, 5]\n'
AGES = '[columns.age]\nunit = "years"\nrange = [18, 110]\n'
# By name: the formula, the family, the tables, and what else the study's file says.
STUDIES = {
    "plain": ("disease ~ age + sex + chest_pain + chol + max_hr", "binomial", "hospitals", BINOMIAL + AGES),
    "curved": ("disease ~ bs(age, df=4) + sex * ex_angina + max_hr", "binomial", "hospitals", BINOMIAL + AGES),
    "measured": ("chol ~ age + sex + chest_pain", "gaussian", "hospitals", AGES),
    "kinds": ("chest_pain ~ age + sex", "multinomial", "hospitals", AGES),
    "penalised": ("disease ~ age + sex + chol", "binomial", "hospitals", BINOMIAL + "[penalty]\nstrength = 0.01\n"),
    "refused": ("disease ~ age + weight", "binomial", "hospitals", BINOMIAL),
    "untidy": ('falls ~ age + arm + offset(log(time))', "poisson", "trial.csv", 'missing = "mean"\n'),
    "survived": ("time ~ age + arm", "cox", "trial.csv", 'missing = "complete"\n' + SURVIVAL),
}  # fmt: skip


def steps(engine: str | None) -> Iterator[tuple[str, list[str]]]:
    """The commands in order, each with its name; later ones read what earlier ones wrote."""
    yield "help", ["--help"]
    for command in COMMANDS:
        yield f"help {' '.join(command)}", [*command, "--help"]
    yield "datasets", ["datasets"]
    yield "methods", ["methods"]
    yield "methods page", ["methods", "--markdown"]
    yield "methods counted", ["methods", "--features", "50", "--sketch-size", "16", "--clients", "4", "--wire", "float32"]
    digits = ["compare", "digits", "--clients", "5", "--scale", "maxabs", "--out", "compared"]
    yield "compare", [*digits, "--methods", "auto,fednewton,fedns,fedndes,gd", "--rounds", "8", "--trials", "2"]
    yield "compare again", digits
    made_up = ["compare", "synthetic:rows=3000,columns=12", "--clients", "20", "--split", "dirichlet:0.3", "--quiet"]
    yield "compare made-up", [*made_up, "--methods", "fedavg:local_steps=3,giant,shed", "--rounds", "5", "--out", "made-up"]
    yield (
        "compare regression",
        ["compare", "diabetes", "--clients", "4", "--methods", "fedns", "--rounds", "9", "--out", "reg"],
    )
    yield "run", ["run", "stated.toml"]
    yield (
        "run otherwise",
        ["run", "stated.toml", "--methods", "gd", "--out", "otherwise", "--tol", "1e-2", "--wire", "float32"],
    )
    yield "run sweep", ["run", "swept.toml"]
    yield "run sweep again", ["run", "swept.toml", "--overwrite"]
    yield "study example", ["study", "example", "hospitals"]
    yield "study init", ["study", "init", "hospitals"]
    yield "study init again", ["study", "init", "hospitals"]
    yield (
        "study init one table",
        ["study", "init", "trial.csv", "--site-column", "site", "--outcome", "falls", "-o", "one.toml"],
    )
    yield "fit draft", ["fit", "study.toml", "hospitals", "--out", "fit-draft"]
    yield "predict draft", ["predict", "fit-draft/model.json", "hospitals/davos.csv"]
    for name, (_, _, tables, _) in STUDIES.items():
        one = ["--site-column", "site"] if tables == "trial.csv" else []
        table = tables if one else "hospitals/chur.csv"
        yield f"check {name}", ["check", f"{name}.toml", table]
        yield f"fit {name}", ["fit", f"{name}.toml", tables, *one, "--out", f"fit-{name}"]
        if name != "refused":
            yield f"predict {name}", ["predict", f"fit-{name}/model.json", table, "--out", f"{name}.csv"]
    yield "fit by site", ["fit", "plain.toml", "hospitals", "--standard-errors", "site", "--out", "by-site", "--quiet"]
    yield (
        "predict robust",
        ["predict", "fit-plain/model.json", "hospitals/aarau.csv", "--standard-errors", "HC1", "--out", "r.csv"],
    )
    yield "predict at a site", ["predict", "fit-survived/model.json", "trial.csv", "--site", "north", "--out", "s.csv"]
    for name, words in WRONG.items():
        yield f"wrong {name}", words
    sites = ["--sites", "north,south", "--server", "localhost:1"]
    yield "init-federation", ["init-federation", "bare", *sites]
    yield "init-federation study", ["init-federation", "studied", *sites, "--study", "plain.toml", "--engine", "nvflare"]
    yield "doctor site", ["doctor", "bare/sites/north/site.toml"]
    yield "doctor coordinator", ["doctor", "bare/coordinator/experiment.toml"]
    yield "doctor study", ["doctor", "studied/sites/south/site.toml"]
    yield "what-left of nothing", ["what-left", "bare/sites/north/site.toml", "--out", "nothing"]
    if engine is not None:
        yield (
            "demo-federation",
            ["demo-federation", "--engine", engine, "--methods", "fedns,auto", "--rounds", "5", "--out", "demo"],
        )
        yield "what-left", ["what-left", "demo/sites/site-1/site.toml", "--out", "left"]
    yield "reproduce", ["reproduce", "--quick", "--out", "paper"]


# Commands that are refused, or end in another way than well.
WRONG = {
    "command": ["train"],
    "option": ["compare", "digits", "--speed", "3"],
    "method": ["compare", "digits", "--methods", "newtons"],
    "parameter": ["compare", "digits", "--methods", "fedns:size=3"],
    "data set": ["compare", "digit"],
    "number": ["compare", "digits", "--rounds", "-1"],
    "word": ["compare", "digits", "--split", "fair", "--clients", "3"],
    "file": ["run", "none.toml"],
    "order": ["fit", "hospitals", "plain.toml"],
    "kind": ["run", "plain.toml"],
    "tables": ["fit", "plain.toml"],
    "errors": ["fit", "plain.toml", "hospitals", "--standard-errors", "HC9"],
    "resume": ["fit", "plain.toml", "hospitals", "--resume"],
    "site": ["predict", "fit-plain/model.json", "hospitals/aarau.csv", "--site", "aarau", "--out", "w.csv"],
    "fetch": ["data", "fetch", "nothing-of-this-name", "--url", "http://127.0.0.1:1"],
    "engine": ["demo-federation", "--engine", "pigeons"],
    "folder": ["doctor", "hospitals"],
    "out": ["reproduce", "--quick", "--out", "stated.toml"],
}


def prepare(folder: Path) -> None:
    """Write what the commands read: two files of settings, the studies, and one table with sites, gaps and times."""
    (folder / "stated.toml").write_text(SETTINGS, encoding="utf-8")
    (folder / "swept.toml").write_text(SWEEP, encoding="utf-8")
    for name, (formula, family, _, more) in STUDIES.items():
        text = f'title = "{name}"\nformula = "{formula}"\nfamily = "{family}"\n{more}'
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    draw = random.Random(7)
    lines = ["site,age,arm,falls,time,died"]
    for row in range(400):
        arm, age = draw.choice(("drug", "placebo")), round(draw.gauss(60, 9), 1)
        falls = sum(draw.random() < 0.02 + 0.0005 * age for _ in range(10))
        time = round(draw.expovariate(0.1 if arm == "drug" else 0.2) + 0.05, 2)
        shown = "" if row % 37 == 5 else age
        lines.append(f"{('north', 'south', 'west')[row % 3]},{shown},{arm},{falls},{time},{int(draw.random() < 0.7)}")
    (folder / "trial.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def outcomes(only: str, without: str, engine: str | None) -> Iterator[tuple[str, Outcome]]:
    with tempfile.TemporaryDirectory(prefix="golden-") as home:
        folder, clock = Path(home) / "work", Path(home) / "clock"
        folder.mkdir()
        clock.mkdir()
        (clock / "sitecustomize.py").write_text(CLOCK, encoding="utf-8")
        prepare(folder)
        environment = surroundings(clock, Path(home))
        version = called(["--version"], folder, environment).stdout.split()[-1]
        for name, words in steps(engine):
            if re.search(only, name) and not (without and re.search(without, name)):
                yield name, outcome(words, folder, environment, version)


def surroundings(clock: Path, home: Path) -> dict[str, str]:
    """Return the environment of the commands: no data but what is embedded, one width, and the counting clock."""
    paths = [
        str(clock),
        *(str(Path(part).absolute()) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part),
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FEDNS_")}
    told = {"PYTHONPATH": os.pathsep.join(paths), "FEDNS_CACHE": str(home / "cache"), "COLUMNS": "120", "NO_COLOR": "1"}
    return kept | told


def called(words: list[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedns.cli", *words],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONGEST_SECONDS,
        check=False,
    )  # fmt: skip


def outcome(words: list[str], folder: Path, environment: Mapping[str, str], version: str) -> Outcome:
    before = contents(folder)
    done = called(words, folder, environment)
    after = contents(folder)
    changed = {path: content for path, content in after.items() if before.get(path) != content}

    def mask(text: str) -> str:
        return masked(text.replace(str(folder.parent), "HOME"), version)

    return {
        "command": " ".join(words),
        "status": done.returncode,
        "stdout": mask(done.stdout),
        "stderr": mask(done.stderr),
        "files": {str(path): mask(told(path, content)) for path, content in changed.items()},
        "gone": sorted(map(str, before.keys() - after.keys())),
    }


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def told(path: Path, content: bytes) -> str:
    """Return the text of a file as it is compared: of a page what is read, of a picture its digest, of a key nothing."""
    if path.suffix in (".pdf", ".key", ".pem", ".crt", ".pub", ".db", ".log") or "authority" in path.parts:
        return "there"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return hashlib.sha256(content).hexdigest()
    if path.suffix == ".svg":
        return hashlib.sha256(content).hexdigest()
    return of_page(text) if path.suffix == ".html" else text


def of_page(text: str) -> str:
    """Return the words of a page in their order, those of titles and labels, and the values that charts are drawn from."""
    data = re.findall(r'(?s)<script type="application/json"[^>]*>(.*?)</script>', text)
    text = re.sub(r"(?s)<(script|style).*?</\1>", "", text)
    text = re.sub(r'<[^>]*?\b(?:title|alt|aria-label|href)="(?!data:)([^"]*)"[^>]*>', r"\n\1\n", text)
    lines = html.unescape(re.sub(r"<[^>]+>", "\n", text)).splitlines()
    return "\n".join([*filter(None, map(str.strip, lines)), *data])


MASKS = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?", "TIME"),
    (r"\d{4}-\d\d-\d\d( \d\d:\d\d(:\d\d)?([,.]\d+)?)?", "DATE"),
    (r"ran for [^;]*", "ran for DURATION"),
    (r"[\d.]+ GB free", "FREE"),
    (r"\b[0-9a-f]{32,}\b", "DIGEST"),
)


def masked(text: str, version: str) -> str:
    for pattern, word in MASKS:
        text = re.sub(pattern, word, text)
    return re.sub(rf"\b{re.escape(version)}(?![\w.])", "VERSION", text)


def differences(before: Mapping[str, Outcome], after: Mapping[str, Outcome]) -> Iterator[str]:
    for name, old in before.items():
        new = after[name]
        if old["status"] != new["status"]:
            yield f"{name}: exit status {old['status']}, now {new['status']}"
        pairs = {part: (old[part], new[part]) for part in ("command", "stdout", "stderr")}
        pairs["files that are gone"] = ("\n".join(old["gone"]), "\n".join(new["gone"]))
        for path in sorted(old["files"].keys() | new["files"].keys()):
            pairs[path] = (old["files"].get(path, "not written"), new["files"].get(path, "not written"))
        for part, (was, now) in pairs.items():
            if was != now:
                lines = list(difflib.unified_diff(was.splitlines(), now.splitlines(), "before", "now", lineterm="", n=1))
                more = [f"... and {len(lines) - SHOWN_LINES} lines more"] if len(lines) > SHOWN_LINES else []
                yield "\n".join([f"{name}: {part}", *(line[:300] for line in lines[:SHOWN_LINES]), *more])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--save", type=Path, metavar="FILE")
    todo.add_argument("--compare", type=Path, metavar="FILE")
    parser.add_argument("--only", default="", metavar="WORDS", help="a pattern that names of steps have in them")
    parser.add_argument("--without", default="", metavar="WORDS", help="a pattern that they have not, e.g. reproduce")
    parser.add_argument("--engine", metavar="NAME", help="also a federation of three processes over this engine")
    chosen = parser.parse_args()
    found = dict(outcomes(chosen.only, chosen.without, chosen.engine))
    if chosen.save is not None:
        chosen.save.write_text(json.dumps(found, indent=1), encoding="utf-8")
        print(f"{len(found)} commands: {chosen.save}")
        return 0
    before = json.loads(chosen.compare.read_text(encoding="utf-8"))
    compared = {name: old for name, old in before.items() if name in found}
    told_apart = list(differences(compared, found))
    print("\n\n".join([*told_apart, f"{len(compared)} commands compared, {len(told_apart)} texts differ"]))
    return int(bool(told_apart))


if __name__ == "__main__":
    sys.exit(main())
