"""Baseline hazards of sites at times that a study names: statsmodels' where nothing is tied; only where owners permit."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from tests.studies.situations import save
from tests.studies.test_families import survival
from tests.studies.test_federated import Federation

from fedns.cli import main
from fedns.core.errors import ConfigError
from fedns.numerics.backends.cox import cumulative_hazard
from fedns.reports.fit_page import report
from fedns.studies.fit import fit_study
from fedns.studies.outputs import write_fit
from fedns.studies.prediction import Model
from fedns.studies.study import Study

TIMES = (3.0, 6.0, 12.0, 24.0, 30.0)
STUDY = Study("months ~ age + arm", "cox", status="died", event=("yes",), non_event=("no",), baseline=TIMES)


def untied(seed):
    frame = survival(seed)
    return frame.assign(months=frame["months"] + np.random.default_rng(seed).uniform(0, 0.9, len(frame)))


def test_ties_are_those_of_a_loop_over_events():
    random = np.random.default_rng(0)
    y = np.ceil(random.exponential(5.0, 80)) * np.where(random.random(80) < 0.7, 1, -1)
    z, s = random.normal(size=80) + 700.0, random.uniform(0.5, 2.0, 80)  # exp(z) alone would be too large
    expected = np.zeros(2)
    for time in np.unique(y[y > 0]):
        events = np.flatnonzero(y == time)
        for number in range(len(events)):
            share = s * np.exp(z - 700.0) * (np.abs(y) >= time)
            share[events] *= 1 - number / len(events)
            expected += s[events].mean() / share.sum() * (time <= np.array([4.0, 9.0]))
    np.testing.assert_allclose(cumulative_hazard(z - 700.0, y, s, np.array([4.0, 9.0])), expected, rtol=1e-12)
    np.testing.assert_allclose(cumulative_hazard(z, y, s, np.array([4.0])), expected[:1] * np.exp(-700.0), rtol=1e-10)


def test_hazards_and_survival_are_those_of_statsmodels(tmp_path):
    tables = {"north": untied(0), "south": untied(1)}
    fit = fit_study(STUDY, tables)
    rows = pd.concat(tables.values())
    x = np.column_stack([rows["age"] - 60, rows["arm"] == "b", rows["arm"] == "c"]).astype(float)
    rival = sm.PHReg(rows["months"], x, status=(rows["died"] == "yes").astype(int), strata=np.repeat([0, 1], 180))
    rival = rival.fit(method="newton", disp=0, tol=1e-14)
    write_fit(fit, tmp_path)
    model = Model.load(tmp_path / "model.json")
    new = pd.DataFrame({"age": [50.0, 71.0, 60.0], "arm": ["b", "a", "z"]})
    margins = np.array([[-10.0, 1.0, 0.0], [11.0, 0.0, 0.0]]) @ rival.params
    for place, site in enumerate(tables):
        when, hazards, _ = rival.baseline_cumulative_hazard[place]
        told = fit.baseline[site]
        expected = np.array([hazards[when > time][0] for time in told.times])  # statsmodels' are until before a time
        found = model.survival(new, site)
        np.testing.assert_allclose(found.probabilities[:2], np.exp(-np.exp(margins)[:, None] * expected), rtol=1e-6)
        assert np.isnan(found.probabilities[2]).all() and "'z'" in found.refusals[2]
    assert "<h2>Baseline hazards</h2>" in report(fit)


def test_times_with_few_events_since_the_last_are_left_out():
    tables = {"north": untied(0), "south": untied(1)}
    events = tables["north"].query("died == 'yes'")["months"].sort_values().to_numpy()
    times = (float(events[3]) + 1e-9, float(events[5]) + 1e-9, float(events[8]) + 1e-9, float(events[40]) + 1e-9)
    told = fit_study(Study(**{**plain(STUDY), "baseline": times}), tables).baseline["north"]
    assert told.times == (times[1], times[3])


def plain(study):
    return {name: getattr(study, name) for name in ("formula", "family", "status", "event", "non_event")}


def test_owners_permit_it_or_not(tmp_path):
    paths = save({"north": survival(0), "south": survival(1)}, tmp_path)
    refused = Federation(paths, tmp_path / "one").fit(STUDY)
    assert not refused.baseline and refused.converged
    assert any("no baseline hazard of site 'north'" in note and "its owner permits no" in note for note in refused.notes)
    permitted, here = Federation(paths, tmp_path / "two", baseline_hazards=True).fit(STUDY), fit_study(STUDY, paths)
    assert permitted.baseline == here.baseline and set(here.baseline) == {"north", "south"}
    assert permitted.uplink_bytes == here.uplink_bytes


def test_the_command_writes_survival(tmp_path, capsys):
    write_fit(fit_study(STUDY, {"north": survival(0), "south": survival(1)}), tmp_path)
    new = tmp_path / "new.csv"
    new.write_text("age,arm\n55,a\n70,c\n", encoding="utf-8")
    out = tmp_path / "survival.csv"
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(tmp_path / "model.json"), str(new), "--out", str(out), "--site", "south"])
    assert ended.value.code in (0, None) and "2 of 2 rows predicted" in capsys.readouterr().out
    lines = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    assert 0 < float(lines[0]["survival[12]"]) < float(lines[0]["survival[6]"]) < 1
    with pytest.raises(ConfigError, match="west"):
        Model.load(tmp_path / "model.json").survival(new, "west")


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"baseline": (3.0, 2.0)}, "later than"),
        ({"baseline": (-1.0,)}, "above 0"),
        ({"baseline": tuple(range(1, 200))}, "100"),
    ],
)
def test_times_that_are_none_are_refused(changed, word):
    with pytest.raises(ConfigError, match=word):
        Study(**plain(STUDY), **changed)
    with pytest.raises(ConfigError, match="baseline belongs to family cox"):
        Study("y ~ x", "gaussian", baseline=(1.0,))


def test_the_times_are_part_of_the_study():
    assert Study.from_json(STUDY.to_json()) == STUDY
    assert json.loads(STUDY.to_json())["outcome"]["baseline"] == list(TIMES)
    assert Study(**plain(STUDY)).digest != STUDY.digest
