"""Synthetic data: the recipe, the distribution, and what a seed promises."""

import numpy as np
import pytest

from fedns.core.errors import DataError
from fedns.lab.data import synthetic
from fedns.lab.data.synthetic import SyntheticSpec, generate, parse


def test_recipes():
    assert parse("synthetic:") == SyntheticSpec()
    assert parse("synthetic:rows=100, decay=2,rotate=no,task=regression,seed=7") == SyntheticSpec(
        rows=100, decay=2.0, rotate=False, task="regression", seed=7
    )
    susy = parse("synthetic:susy")
    assert (susy.rows, susy.columns, susy.sites, susy.task) == (5_000_000, 18, 1000, "binary")
    covtype = parse("synthetic:covtype,rows=5000")
    assert (covtype.rows, covtype.columns, covtype.sites) == (5000, 54, 200)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("synthetic:colour=1", "no setting 'colour': use rows, columns, task, decay"),
        ("synthetic:rows=many", "rows must be a whole number, got 'many'"),
        ("synthetic:decay=fast", "decay must be a number, got 'fast'"),
        ("synthetic:rotate=maybe", "rotate must be true or false, got 'maybe'"),
        ("synthetic:rows=0", "rows must be a whole number >= 1, got 0"),
        ("synthetic:noise=-1", "noise must be a finite number >= 0, got -1"),
        ("synthetic:decay=nan", "decay must be a finite number >= 0, got nan"),
        ("synthetic:rows=5,sites=6", "5 rows for 6 sites: use at most 5 sites"),
        ("synthetic:task=multiclass", "task must be binary or regression, got 'multiclass'"),
        ("synthetic:susie", "'susie' .* one of the shapes susy, covtype"),
        ("synthetic:rows=5,susy", "'susy' .* in first place"),
    ],
)
def test_recipes_that_do_not_work(name, problem):
    with pytest.raises(DataError, match=problem):
        parse(name)


def test_a_seed_gives_the_same_data_and_another_seed_does_not():
    spec = SyntheticSpec(rows=500, columns=5)
    first, again, other = generate(spec), generate(spec), generate(SyntheticSpec(rows=500, columns=5, seed=1))
    assert first.features.tobytes() == again.features.tobytes()
    assert first.targets.tobytes() == again.targets.tobytes()
    assert not np.isclose(first.features, other.features).any()


def test_chunks_differ_and_fewer_rows_are_a_prefix(monkeypatch):
    monkeypatch.setattr(synthetic, "CHUNK_ROWS", 64)
    long = generate(SyntheticSpec(rows=200, columns=4, sites=1))
    short = generate(SyntheticSpec(rows=100, columns=4, sites=1))
    np.testing.assert_allclose(long.features[:100], short.features, rtol=1e-12)
    np.testing.assert_array_equal(long.targets[:100], short.targets)
    assert not np.isclose(long.features[:64], long.features[64:128]).any()


def test_single_precision_rounds_the_same_data():
    spec = SyntheticSpec(rows=300, columns=4)
    single = generate(spec, np.float32)
    assert single.features.dtype == np.float32
    np.testing.assert_array_equal(single.features, generate(spec).features.astype(np.float32))


@pytest.mark.parametrize("rotate", [True, False])
def test_eigenvalues_decay_as_asked(rotate):
    spec = SyntheticSpec(rows=50_000, columns=8, decay=1.5, heterogeneity=0.0, sites=1, rotate=rotate)
    covariance = np.cov(generate(spec).features.T)
    eigenvalues = np.linalg.eigvalsh(covariance)[::-1]
    np.testing.assert_allclose(eigenvalues, np.arange(1.0, 9.0) ** -1.5, rtol=0.05)
    correlated = np.abs(covariance - np.diag(np.diag(covariance))).max()
    assert correlated > 0.05 if rotate else correlated < 0.02


def test_heterogeneity_moves_means_and_coefficients_of_sites():
    def sites(heterogeneity):
        spec = SyntheticSpec(
            rows=20_000, columns=4, task="regression", decay=0.0, heterogeneity=heterogeneity, sites=5, noise=0.0
        )
        table = generate(spec)
        fits, means = [], []
        for site in range(5):
            rows = table.features[table.groups == site]
            fit, residual, *_ = np.linalg.lstsq(rows, table.targets[table.groups == site])
            assert residual < 1e-12  # without noise each site is exactly linear
            fits.append(fit)
            means.append(rows.mean(axis=0))
        return np.ptp(fits, axis=0).max(), np.ptp(means, axis=0).max()

    same_fit, same_mean = sites(0.0)
    other_fit, other_mean = sites(1.0)
    assert same_fit < 1e-12
    assert same_mean < 0.12
    assert other_fit > 0.5
    assert other_mean > 0.5


def test_targets():
    binary = generate(SyntheticSpec(rows=5000, columns=6))
    assert np.unique(binary.targets).tolist() == [-1, 1]
    assert abs(binary.targets.mean()) < 0.3
    quiet = generate(SyntheticSpec(rows=5000, columns=6, task="regression", noise=0.0, heterogeneity=0.0))
    loud = generate(SyntheticSpec(rows=5000, columns=6, task="regression", noise=3.0, heterogeneity=0.0))
    assert quiet.targets.std() == pytest.approx(2.0, rel=0.05)
    assert (loud.targets - quiet.targets).std() == pytest.approx(3.0, rel=0.05)


def test_sites_are_contiguous_and_of_equal_size():
    groups = generate(SyntheticSpec(rows=103, columns=2, sites=10)).groups
    assert (np.diff(groups) >= 0).all()
    assert set(np.bincount(groups)) == {10, 11}
    assert "synthetic" in SyntheticSpec().description
