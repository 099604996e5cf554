"""Sketches whose matrix the coordinator knows, since it wrote the seed into the job."""

from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.attacker import (
    DEFAULTS,
    GUARD_OFF,
    Attacker,
    Refused,
    binary_by_linear_programming,
    error,
    recovered,
)

from fedns.core.shards import Shards
from fedns.methods.curvature import Iterate
from fedns.numerics.rng import stream_keys
from fedns.sketches import SJLT, SRHT, RowSampling

ROWS, COLUMNS = 200, 8
RANDOM = np.random.default_rng(2)
X = RANDOM.normal(size=(ROWS, COLUMNS))
Y = np.where(X @ RANDOM.normal(size=COLUMNS) + RANDOM.normal(size=ROWS) > 0, 1.0, -1.0)
SHARDS = Shards.from_arrays(X, Y, [ROWS])


def sketches_at_zero(attacker, rounds):
    """What the site sends at w = 0, where every row counts alike, as sketches of the rows themselves."""
    scale = 2 * np.sqrt(attacker.num_rows)  # the root of the Hessian is x_i / (2 sqrt n)
    for round in range(1, rounds + 1):
        try:
            answer = attacker.ask("curvature", Iterate(np.zeros(attacker.num_features)), round)
        except Refused:
            break
        yield round, scale * answer.sketched_root


def supposed_matrix(attacker, sketch, round):
    """The matrix that the job's seed gives."""
    return sketch.matrix(attacker.num_rows, stream_keys(attacker.spec.seed, "sketch", round, [0])[0])


def add_up(folder, permissions, rounds=14):
    """FedNS as it is by default: after n / k rounds there are as many equations as rows."""
    attacker = Attacker(SHARDS, folder, permissions, "fedns", sketch_size=16)
    seen = list(sketches_at_zero(attacker, rounds))
    matrix = np.vstack([supposed_matrix(attacker, SRHT(16), round) for round, _ in seen])
    found = np.linalg.lstsq(matrix, np.vstack([sketch for _, sketch in seen]), rcond=None)[0]
    return error(found[:, :-1], X), recovered(found[:, :-1], X)


def test_without_a_guard_the_sketches_of_a_run_add_up_to_the_rows(tmp_path):
    off, share = add_up(tmp_path, GUARD_OFF)
    assert off < 1e-8
    assert share == 1.0


def test_by_default_they_add_up_to_nothing(tmp_path):
    off, share = add_up(tmp_path, DEFAULTS)
    assert off > 0.9  # guessing the mean has 1
    assert share == 0.0


def test_a_secret_seed_alone_is_enough(tmp_path):
    off, share = add_up(tmp_path, replace(GUARD_OFF, job_seed=False))
    assert off > 0.9
    assert share == 0.0


def verbatim(folder, permissions, kind, size, rounds):
    """Rows that stand in a sketch as they are: sampled, or alone in their bucket. The sign follows from the intercept."""
    attacker = Attacker(SHARDS, folder, permissions, "fedns", sketch=kind, sketch_size=size)
    attacker.ask("curvature", Iterate(np.zeros(attacker.num_features)), 1)  # a refusal ends the attack here
    attacker.begin()
    found = []
    for _, sketch in sketches_at_zero(attacker, rounds):
        scaled = sketch / np.where(sketch[:, -1:] == 0, 1.0, sketch[:, -1:])
        found.append(scaled[:, :-1])
    return recovered(np.vstack(found), X, 1e-9)


@pytest.mark.parametrize(
    ("kind", "size", "rounds", "share"),
    [("rows", ROWS // 2, 1, 0.49), ("rows", ROWS // 2, 30, 1.0), ("sjlt", ROWS, 1, 0.3), ("sjlt", ROWS, 30, 0.99)],
)
def test_without_a_guard_the_coordinator_chooses_a_sketch_that_holds_rows(kind, size, rounds, share, tmp_path):
    assert verbatim(tmp_path, GUARD_OFF, kind, size, rounds) >= share


@pytest.mark.parametrize(
    ("kind", "size", "sentence"),
    [
        ("rows", ROWS // 4, "^R3: a sketch of sampled rows is rows of the data, which do not leave it$"),
        ("srht", ROWS // 2, "^R3: a sketch of 100 rows is more than 0.25 of its rows$"),
        ("sjlt", ROWS // 4, "^R3: an sjlt sketch of 50 rows needs 12 times as many rows$"),
    ],
)
def test_by_default_such_sketches_are_refused_before_they_are_taken(kind, size, sentence, tmp_path, passes):
    with pytest.raises(Refused, match=sentence):
        verbatim(tmp_path, DEFAULTS, kind, size, 1)
    assert passes == []


def test_by_default_the_smallest_sjlt_holds_no_row(tmp_path):
    assert verbatim(tmp_path, DEFAULTS, "sjlt", ROWS // 12, 30) == 0.0


def binary_columns(folder, permissions, share_of_ones, fraction):
    """Columns of zeros and ones from one sketch: the share of ones that are found, and what guessing would find."""
    random = np.random.default_rng(4)
    x = (random.random((2 * ROWS, COLUMNS)) < share_of_ones).astype(float)
    size = int(fraction * len(x))
    shards = Shards.from_arrays(x, np.concatenate([Y, Y]), [len(x)])
    attacker = Attacker(shards, folder, permissions, "fedns", sketch_size=size)
    ((round, sketch),) = sketches_at_zero(attacker, 1)
    matrix = supposed_matrix(attacker, SRHT(size), round)
    shares = []
    for column in range(3):
        found = binary_by_linear_programming(matrix, sketch[:, column]) == 1
        both = (found & (x[:, column] == 1)).sum()
        shares.append(both / max(found.sum(), x[:, column].sum()))
    return float(np.mean(shares)), float(x[:, :3].mean())


@pytest.mark.parametrize(("share_of_ones", "fraction"), [(0.5, 0.6), (0.03, 0.25)])
def test_without_a_guard_binary_columns_follow_from_one_sketch_of_fewer_rows(share_of_ones, fraction, tmp_path):
    assert binary_columns(tmp_path, GUARD_OFF, share_of_ones, fraction)[0] == 1.0


def test_by_default_they_do_not(tmp_path):
    found, chance = binary_columns(tmp_path, DEFAULTS, 0.03, 0.25)
    assert found < chance + 0.15


def test_the_seed_is_committed_to_in_the_ledger_and_kept_from_other_accounts(tmp_path):
    attacker = Attacker(SHARDS, tmp_path, DEFAULTS, "fedns")
    attacker.ask("curvature", Iterate(np.zeros(attacker.num_features)), 1)
    secret = tmp_path / "secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert '"seed_commitments": {"sketch": "' in (tmp_path / "ledger.jsonl").read_text()
    assert secret.read_bytes().hex() not in (tmp_path / "ledger.jsonl").read_text()


def test_the_matrices_of_sketches_are_sketches_also_with_a_secret_seed(tmp_path):
    """E[S'S] = I: the mean of many sketched Hessians is the Hessian, so that methods work as with the job's seed."""
    attacker = Attacker(SHARDS, tmp_path, replace(GUARD_OFF, job_seed=False), "fedns", sketch_size=16, rounds=400)
    grams = np.array([sketch.T @ sketch for _, sketch in sketches_at_zero(attacker, 400)])
    whole = np.column_stack([X, np.ones(ROWS)])
    errors = (grams.mean(axis=0) - whole.T @ whole) / (grams.std(axis=0, ddof=1) / np.sqrt(400))
    # In units of their own standard deviation; one of 45 is this far off with one seed of 3000, and this seed is fixed.
    assert np.abs(errors).max() < 4.5


def test_kinds_of_sketches_are_told_apart():
    kinds = [kind(4).plan(np.array([50])).kind for kind in (SRHT, SJLT, RowSampling)]
    assert len(set(kinds)) == 3
