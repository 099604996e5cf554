"""constraints.txt: the versions that the tests ran with, one for everything that the package asks for."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
EXTRAS = [text for group in PROJECT["optional-dependencies"].values() for text in group]
REQUIRED = [Requirement(text) for text in [*PROJECT["dependencies"], *EXTRAS] if not text.startswith("fedns[")]


def test_lines_are_names_and_versions_in_order():
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.+!_-]*", line) for line in LINES), LINES
    assert sorted(LINES, key=str.lower) == LINES


@pytest.mark.parametrize("requirement", REQUIRED, ids=str)
def test_everything_the_package_asks_for_has_a_version_that_will_do(requirement):
    versions = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in LINES)}
    found = versions.get(canonicalize_name(requirement.name))
    assert found is not None, f"{requirement.name} is missing: make constraints"
    assert requirement.specifier.contains(found, prereleases=True), f"{requirement} does not allow {found}: make constraints"
