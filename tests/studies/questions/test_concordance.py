"""Harrell's C against loops over pairs, and its standard error against derivatives in the weights."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fedns.studies.questions.concordance import TimeDiagnostics, concordance


def brute_force(time, event, risk, weights=None):
    """Agreeing pairs and all pairs, one by one."""
    s, agree, pairs = np.ones(len(time)) if weights is None else weights, 0.0, 0.0
    for i in np.flatnonzero(event):
        for j in range(len(time)):
            if time[j] > time[i] or (time[j] == time[i] and not event[j]):
                pairs += s[i] * s[j]
                agree += s[i] * s[j] * (1.0 if risk[i] > risk[j] else 0.5 if risk[i] == risk[j] else 0.0)
    return agree, pairs


def drawn(rows, seed, times=8):
    random = np.random.default_rng(seed)
    time, event = np.ceil(random.exponential(times, rows)), random.random(rows) < 0.6
    return time, event, random.normal(size=rows).round(1), random.integers(1, 4, rows).astype(float)


@pytest.mark.parametrize("seed", range(8))
def test_it_is_that_of_a_loop_over_pairs(seed, monkeypatch):
    monkeypatch.setattr("fedns.studies.questions.concordance._FEW", 4)  # so that rows are divided and merged
    time, event, risk, weights = drawn(70, seed, times=[2, 30][seed % 2])
    found = concordance(np.where(event, time, -time), risk, weights)
    assert (found.agree, found.pairs) == pytest.approx(brute_force(time, event, risk, weights), rel=1e-12)


def test_the_standard_error_is_how_the_index_changes_with_every_weight():
    time, event, risk, weights = drawn(40, 3)
    found, changes = concordance(np.where(event, time, -time), risk, weights), []
    for row in range(40):
        ends = []
        for by in (1e-4, -1e-4):
            moved = weights.copy()
            moved[row] += by
            agree, pairs = brute_force(time, event, risk, moved)
            ends.append(agree / pairs)
        changes.append(weights[row] * (ends[0] - ends[1]) / 2e-4)
    assert found.standard_error == pytest.approx(np.linalg.norm(changes), rel=1e-6)


def test_it_is_the_area_under_the_curve_where_events_are_all_at_once():
    random = np.random.default_rng(0)
    event, risk = random.random(3000) < 0.4, random.normal(size=3000)
    found = concordance(np.where(event, 1.0, -2.0), risk)
    assert found.index == pytest.approx(roc_auc_score(event, risk), rel=1e-12)


def test_sites_add_up():
    parts = [concordance(np.where(event, time, -time), risk) for time, event, risk, _ in (drawn(50, 1), drawn(80, 2))]
    total = TimeDiagnostics(dict(zip("ab", parts, strict=True))).total
    assert total.index == pytest.approx((parts[0].agree + parts[1].agree) / (parts[0].pairs + parts[1].pairs))
    assert 0 < total.standard_error < min(part.standard_error for part in parts)


def test_without_a_pair_there_is_no_index():
    assert np.isnan(concordance(np.full(5, -1.0), np.arange(5.0)).index)
