"""Coordinator and sites in processes of their own, killed by SIGKILL in mid-work, end with the bits of a quiet run."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
METHODS = ("fedndes", "fednl", "qfednew", "shed", "auto")
KILLS = 11  # in each of the five runs at night


def federation(folder, method, kills):
    """The coefficients, and how many processes were killed."""
    command = [sys.executable, "-m", "tests.federation.killed_processes", str(folder), method, *kills]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, int(done.stderr.split()[-1])


def same_bits(folder, method, kills):
    quiet, none = federation(folder / "quiet", method, [])
    disturbed, killed = federation(folder / "disturbed", method, kills)
    assert none == 0 and len(quiet) > 10
    assert disturbed == quiet
    return killed


@pytest.mark.slow
def test_killed_in_the_middle_of_a_file_a_line_and_an_answer(tmp_path):
    assert same_bits(tmp_path, "fednl", ["coordinator:3", "site-0:2", "site-0:7", "site-1:9", "site-2:16"]) == 5


@pytest.mark.nightly
@pytest.mark.parametrize("method", METHODS)
def test_killed_at_many_points(method, tmp_path):
    random = np.random.default_rng(sum(method.encode()))
    who = ["coordinator"] * 2 + ["site-0"] * 3 + ["site-1"] * 3 + ["site-2"] * 3
    steps = [int(random.integers(1, 5 if name == "coordinator" else 12)) for name in who]
    assert same_bits(tmp_path, method, [f"{name}:{step}" for name, step in zip(who, steps, strict=True)]) == KILLS
