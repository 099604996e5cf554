"""Scikit-learn's own test files, run with our estimators in the place of its own: what fails is listed with its reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sklearn

LISTED = json.loads(Path(__file__).with_name("failures.json").read_text(encoding="utf-8"))
FOLDER = Path(sklearn.__file__).parent


@pytest.mark.nightly
@pytest.mark.parametrize("name", LISTED["passing"])
def test_what_fails_is_what_is_listed(name, tmp_path):
    """A test that fits none of our estimators says nothing about them, and is not counted."""
    if sklearn.__version__ != LISTED["version"]:
        pytest.skip(f"the list is of scikit-learn {LISTED['version']}, this is {sklearn.__version__}")
    told = tmp_path / "told.json"
    options = [
        "-p",
        "tests.studies.estimators.scikit_learn.shim",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--told",
        told,
    ]
    command = [sys.executable, "-m", "pytest", "-q", *options, FOLDER / name]
    finished = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=3600, check=False)
    assert told.exists(), finished.stdout[-2000:] + finished.stderr[-2000:]
    found = json.loads(told.read_text(encoding="utf-8"))
    failed = {test: why for test, (outcome, why) in found.items() if outcome == "failed"}
    listed = {test for tests in LISTED["failing"].values() for test in tests if test.startswith(f"{name}::")}
    assert not failed.keys() - listed, {test: why for test, why in failed.items() if test not in listed}
    assert not listed - failed.keys(), "these pass now: take them off the list"
    assert sum(outcome == "passed" for outcome, _ in found.values()) == LISTED["passing"][name]
