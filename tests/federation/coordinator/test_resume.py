"""A coordinator killed by SIGKILL and resumed gives the result of one that was left alone, to the last bit."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
FEW, MANY = 5, 13  # kills in each of the runs below: 25 in all, and more than a hundred at night
NIGHTLY = ("qfednew", "shed", "auto:prefer=balanced", "auto:prefer=rounds", "scaffold", "fednlbc")


def coordinator(folder, method, steps):
    command = [
        sys.executable,
        "-m",
        "tests.federation.coordinator.killed_coordinator",
        str(folder),
        method,
        *map(str, steps),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# One that keeps nothing at its sites, and others whose sites' memory has to go back to where the round began.
@pytest.mark.parametrize("kills", [FEW, pytest.param(MANY, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "method",
    ["fedndes", "fednl", "auto", *(pytest.param(name, marks=pytest.mark.nightly) for name in NIGHTLY)],
)
def test_killed_at_random_points_and_resumed_is_the_same_to_the_last_bit(method, kills, tmp_path):
    undisturbed = coordinator(tmp_path / "undisturbed", method, [])
    steps = np.random.default_rng(sum(method.encode())).integers(1, 70, size=kills)
    disturbed = tmp_path / "disturbed"
    assert coordinator(disturbed, method, steps) == undisturbed
    assert len(undisturbed.split()) == 3
