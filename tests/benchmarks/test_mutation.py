"""The tool that plants defects: it plants programs, finds the tests that run a line, and sees whether one fails."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

from benchmarks.mutation.__main__ import drawn, outcome
from benchmarks.mutation.areas import AREAS
from benchmarks.mutation.operators import mutants
from benchmarks.mutation.scratch import Scratch

ROOT = Path(__file__).parents[2]
SOURCE = '''"""Ages."""

LIMIT = 18


def grown_up(age: int = 0) -> bool:
    """Say it."""
    if age < 0 or age > 130:
        raise ValueError(f"an age is from 0 to 130, got {age:g} of {LIMIT}")
    return age >= LIMIT


def unused(age: int) -> int:
    return age + 1
'''
TESTS = """import subprocess
import sys

from ages import grown_up


def test_one_side():
    assert grown_up(19) and not grown_up(5)


def test_a_process():
    subprocess.run([sys.executable, "-c", "import ages; assert not ages.grown_up(17)"], check=True)
"""


def test_what_is_planted_is_a_program_and_another_one() -> None:
    found = mutants("ages.py", SOURCE)
    planted = {(mutant.operator, mutant.before, mutant.after) for mutant in found}
    assert ("other side of a limit", "age >= LIMIT", "(age > LIMIT)") in planted
    assert ("and or", "age < 0 or age > 130", "(age < 0 and age > 130)") in planted
    assert ("dropped check", "age < 0 or age > 130", "False") in planted
    assert ("constant", "18", "(19)") in planted and ("constant", "0", "(1)") in planted
    assert any(operator == "removed raise" and after == "pass" for operator, _, after in planted)
    assert any(operator == "value of a sentence" and "{LIMIT:g} of {age}" in after for operator, _, after in planted)
    assert not any(text in before for _, before, _ in planted for text in ("Ages", "Say it", "int", "bool"))
    for mutant in found:
        changed = mutant.applied(SOURCE.encode())
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE)), mutant


def test_every_area_names_files_and_a_seed_draws_the_same_defects() -> None:
    for area in AREAS.values():
        assert area.source_files(ROOT) and area.test_files(ROOT)
    files = AREAS["meter"].source_files(ROOT)
    first, again = ([mutant for mutant, _ in zip(drawn(files, ROOT, 3), range(40), strict=False)] for _ in range(2))
    assert first == again and len({(mutant.file, mutant.line) for mutant in first}) == 40


def test_a_test_that_runs_the_line_notices_or_does_not(tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(ROOT / "benchmarks/mutation", root / "benchmarks/mutation")
    (root / "src").mkdir()
    (root / "src/ages.py").write_text(SOURCE)
    (root / "test_ages.py").write_text(TESTS)
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    scratch = Scratch(root, tmp_path / "copy")
    covered = scratch.covered("ages", ["src/ages.py"], ["test_ages.py"])
    assert covered.passed == ["test_ages.py::test_one_side", "test_ages.py::test_a_process"]
    by_line = {(mutant.before, mutant.after): mutant for mutant in mutants("src/ages.py", SOURCE)}
    lower = by_line["18", "(17)"]
    assert lower.on_import and set(covered.tests_of(lower)) == set(covered.passed)
    assert outcome(lower, scratch, covered)["noticed"] == "test_ages.py::test_a_process"
    upper = outcome(by_line["130", "(131)"], scratch, covered)
    assert upper["noticed"] is None and upper["tests"] == 2
    assert outcome(by_line["age + 1", "(age - 1)"], scratch, covered)["survived"] == "no test of the area runs this line"
    assert (scratch.tree / "src/ages.py").read_text() == SOURCE == (root / "src/ages.py").read_text()
