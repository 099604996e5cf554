"""A run that is not opened tells something of the rows: whether anybody is outside a range, how few have a level."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.attacker import DEFAULTS, GUARD_OFF, Refused
from tests.attacks.study_site import COLUMNS, StudySite

from fedns.federation.site import budget, guard, service
from fedns.federation.site.budget import BUDGET_FOLDER, Budget
from fedns.studies.design.agreement import Agreement
from fedns.studies.study import Study


def is_below(site, age):
    """Whether nobody here is older: a study refuses values outside the range that it names."""
    text = site.study("dose", family="gaussian", columns={"age": {"range": [-100.0, age]}}).replace("age + dose", "age")
    agreed = Agreement(Study.from_json(text).digest, centres=dict.fromkeys(COLUMNS, (0.0, 1.0))).to_json()
    try:
        site.open(text, agreed)
    except Refused as refusal:
        if not str(refusal).startswith("R7"):
            raise
        return False
    return True


def oldest(site, openings):
    low, high = -100.0, 100.0
    for _ in range(openings):
        middle = (low + high) / 2
        low, high = (low, middle) if is_below(site, middle) else (middle, high)
    return high


def test_without_a_guard_openings_alone_tell_the_largest_value(tmp_path):
    site = StudySite(tmp_path / "a", replace(GUARD_OFF, explain=False))
    assert oldest(site, 50) == pytest.approx(site.table["age"].max(), abs=1e-9)


def spent(site):
    """As the disk has it: by somebody who comes later."""
    return Budget(site.folder / "state", site.mark).spent()


class Clock:
    def __init__(self, monkeypatch):
        self.now = 1e9
        for module in (guard, service, budget):
            monkeypatch.setattr(module.time, "time", lambda: self.now)


def test_by_default_every_refused_opening_costs_a_point(tmp_path):
    site = StudySite(tmp_path / "a", DEFAULTS)
    assert not is_below(site, -50.0)
    assert spent(site).amounts.points == 1
    assert not is_below(site, -50.0)  # the same description tells nothing new
    assert spent(site).amounts.points == 1
    assert is_below(site, 50.0)  # an opened run has cost nothing yet
    assert spent(site).amounts.points == 1
    assert not is_below(site, -51.0)
    assert spent(site).amounts.points == 2


def test_by_default_they_count_among_the_runs_of_an_hour_also_after_a_restart(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    site = StudySite(tmp_path / "a", replace(DEFAULTS, runs_per_hour=5))
    for age in (-50.0, -51.0, -52.0):
        assert not is_below(site, age)
    site.restart()
    for age in (-53.0, -54.0):
        assert not is_below(site, age)
    clock.now += 3599.0
    with pytest.raises(Refused, match=r"^R6: it takes part in 5 runs an hour, those that it refused included$"):
        is_below(site, -55.0)
    clock.now += 2.0
    assert not is_below(site, -55.0)


def test_by_default_there_are_as_many_as_points(tmp_path):
    site = StudySite(tmp_path / "a", replace(DEFAULTS, points=3))
    for age in (-50.0, -51.0, -52.0):
        assert not is_below(site, age)
    for age in (-53.0, 50.0):
        with pytest.raises(Refused, match=r"^R5: its owner permits answers about 3 distinct coefficients, over all runs$"):
            is_below(site, age)
    assert not list((site.folder / "state").glob("*.npz"))


def test_what_the_disk_does_not_take_is_not_told(tmp_path, monkeypatch):
    site, flushed = StudySite(tmp_path / "a", DEFAULTS), []

    def broken(file):
        flushed.append(file)
        raise OSError("no more disk")

    monkeypatch.setattr(budget.os, "fsync", broken)
    small = {"event": ["0"], "non_event": [str(number) for number in range(1, 15)]}
    with pytest.raises(Refused, match=r"^R7: it cannot answer; why stands in its own log$"):
        site.gradient_at_zero(site.study("bed", family="binomial", outcome=small), 4)
    assert flushed


def test_bare_columns_are_no_exception(tmp_path):
    """A site without a study: its rows refuse a loss that they do not suit."""
    from tests.attacks.attacker import Attacker

    from fedns.core.shards import Shards

    x = np.random.default_rng(0).normal(size=(60, 3))
    shards = Shards.from_arrays(x, np.where(x[:, 0] > 0, 1.0, -1.0), [60])
    attacker = Attacker(shards, tmp_path, DEFAULTS, "gd")
    for number in range(1, 4):
        with pytest.raises(Refused, match="R7"):
            attacker.begin(loss="poisson", seed=number)
    (file,) = (tmp_path / BUDGET_FOLDER).glob("*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines() if line]
    assert sum(len(line["points"]) for line in lines if line.get("refused")) == 3
