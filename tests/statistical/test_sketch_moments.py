"""E[S'S] = I, and independence across clients and rounds, by statistical tests with fixed seeds.

Each entry of the mean of S'S - I over many draws is compared with its own standard error; |z| < 5.5 for every one of at
most 1600 entries fails by chance in about 1 of 16,000 runs (Bonferroni), and the seeds are fixed.
"""

import numpy as np
import pytest

from fedns.numerics.rng import stream_keys
from fedns.sketches import SJLT, SRHT, Gaussian, Rademacher, RowSampling

SKETCHES = [Gaussian(5), Rademacher(5), SRHT(5), SRHT(16), SJLT(5), SJLT(6, nonzeros=3), RowSampling(5)]
DRAWS = 3000
ROWS = 20
BOUND = 5.5


def draws(sketch, purpose="sketch"):
    keys = stream_keys(0, purpose, 1, np.arange(DRAWS))
    return np.stack([sketch.matrix(ROWS, key) for key in keys])


def z_scores(samples):
    """Mean over its standard error; 0 where the quantity is constant and 0, infinite where it is constant and not."""
    mean, deviation = samples.mean(axis=0), samples.std(axis=0)
    error = deviation / np.sqrt(len(samples))
    constant = deviation < 1e-12
    return np.where(constant, np.where(np.abs(mean) < 1e-12, 0.0, np.inf), mean / np.where(constant, 1.0, error))


@pytest.mark.parametrize("sketch", SKETCHES, ids=str)
def test_expected_gram_is_the_identity(sketch):
    matrices = draws(sketch)
    grams = np.einsum("tki,tkj->tij", matrices, matrices)
    assert np.abs(z_scores(grams - np.eye(ROWS))).max() < BOUND


@pytest.mark.parametrize("sketch", [Gaussian(5), Rademacher(5), SRHT(5), SJLT(5)], ids=str)
def test_entries_have_mean_zero(sketch):
    assert np.abs(z_scores(draws(sketch))).max() < BOUND


@pytest.mark.parametrize("sketch", [Gaussian(5), Rademacher(5), SRHT(5), SJLT(5), SJLT(6, nonzeros=3)], ids=str)
def test_clients_and_rounds_are_independent(sketch):
    """E[S_a' S_b] = 0 for two clients in a round, and for a client in two rounds."""
    clients = draws(sketch)
    assert np.abs(z_scores(np.einsum("tki,tkj->tij", clients[:-1], clients[1:]))).max() < BOUND
    rounds = [stream_keys(0, "sketch", t, [7])[0] for t in range(DRAWS)]
    over_time = np.stack([sketch.matrix(ROWS, key) for key in rounds])
    assert np.abs(z_scores(np.einsum("tki,tkj->tij", over_time[:-1], over_time[1:]))).max() < BOUND


def test_row_sampling_is_uniform():
    counts = (draws(RowSampling(5)) != 0).sum(axis=(0, 1))
    expected = DRAWS * 5 / ROWS
    deviation = np.sqrt(DRAWS * (5 / ROWS) * (1 - 5 / ROWS))
    assert np.abs((counts - expected) / deviation).max() < 5


def test_a_wrong_scale_would_be_noticed():
    """The test above can fail: a sketch that is 2 % too large is caught."""
    matrices = 1.02 * draws(Rademacher(5))
    grams = np.einsum("tki,tkj->tij", matrices, matrices)
    assert np.abs(z_scores(grams - np.eye(ROWS))).max() > BOUND
