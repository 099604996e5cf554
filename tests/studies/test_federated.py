"""Studies over sites that keep their tables: real packets and the sites' own rules, without a network."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from tests.federation.in_process import InProcess
from tests.studies.random_problems import random_problem
from tests.studies.situations import SITUATIONS, STUDY, save

from fedns.cli.serving import site_service
from fedns.core.errors import DataError, FednsError
from fedns.federation.config import DataSource, SiteConfig
from fedns.federation.permissions import Permissions
from fedns.runs.over_sites import ColumnRun, Policy
from fedns.studies.draft import draft_study
from fedns.studies.example import write_example
from fedns.studies.federated import fit_federation
from fedns.studies.fit import fit_study
from fedns.studies.fitting.estimate import SeparationError
from fedns.studies.study import Study
from fedns.studies.tables.files.frames import read_frame

# Rows are made up here: limits that need more of them are off, those of the handshake are not.
OPEN = {
    "smallest_rows": 1, "rows_per_coefficient": 0.0, "rows_beyond_coefficients": -1000, "rare_levels": "show",
    "smallest_effective_rows": 0.0, "effective_rows_per_coefficient": 0.0, "largest_record_share": 1.0,
    "smallest_mean_curvature": 0.0, "points": 10**6, "largest_released_fraction": math.inf, "requests_per_round": 10**6,
    "requests_per_minute": 10**6, "job_seed": True,
}  # fmt: skip


class Federation:
    """A coordinator and the sites of these tables."""

    def __init__(self, paths: dict[str, Path], folder: Path, **permit):
        self.folder, self.spec = folder, ColumnRun(
            sites=tuple(paths), policy=Policy(patience_seconds=0.0)
        )  # fmt: skip
        configs = {
            name: SiteConfig(
                name, "flower", path.parent, DataSource(path.name), f"state-{name}", Permissions(**(OPEN | permit))
            )
            for name, path in paths.items()
        }
        self.states = {name: config.folder / config.state for name, config in configs.items()}
        self.transport = InProcess({name: site_service(config).answer for name, config in configs.items()})

    def fit(self, study):
        return fit_federation(study, self.spec, self.transport, self.folder / "run")


def test_sites_give_the_simulators_bits(three_sites, tmp_path):
    paths = save(three_sites, tmp_path)
    here, there = fit_study(STUDY, paths), Federation(paths, tmp_path).fit(STUDY)
    assert there.names == here.names and there.coefficients.tobytes() == here.coefficients.tobytes()
    assert there.reason == here.reason and there.notes == here.notes


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)
def test_no_silent_wrong_answer_over_sites(situation, three_sites, tmp_path):
    paths = situation.write(three_sites, tmp_path)
    if situation.name == "two columns of one name":  # such a site does not start, and says why to its owner
        with pytest.raises(DataError, match="more than one column called 'age'"):
            Federation(paths, tmp_path)
        return
    federation = Federation(paths, tmp_path)
    if situation.refusal:
        with pytest.raises(DataError) as refused:
            federation.fit(situation.study)
        assert all(words in str(refused.value) for words in situation.refusal), str(refused.value)
        return
    here, there = fit_study(situation.study, paths), federation.fit(situation.study)
    assert there.coefficients.tobytes() == here.coefficients.tobytes() and situation.note in " ".join(there.notes)


@pytest.mark.parametrize("seed", range(12))
def test_random_problems_over_sites(seed, tmp_path):
    problem = random_problem(seed)
    paths = save(problem.tables, tmp_path)
    try:
        here = fit_study(problem.study, paths)
    except SeparationError:
        here = None
    except FednsError as refusal:
        with pytest.raises(FednsError) as refused:
            Federation(paths, tmp_path).fit(problem.study)
        assert str(refused.value) == str(refusal)
        return
    if here is None:
        with pytest.raises(SeparationError):
            Federation(paths, tmp_path).fit(problem.study)
        return
    there = Federation(paths, tmp_path, smallest_level=5).fit(problem.study)
    assert there.coefficients.tobytes() == here.coefficients.tobytes()


def test_the_ledgers_have_the_handshake_to_the_byte(three_sites, tmp_path):
    federation = Federation(save(three_sites, tmp_path), tmp_path)
    fit = federation.fit(STUDY)
    metered = sum(entry.bytes for entry in fit.ledger if entry.kind == "TableDescription")
    lines = (tmp_path / "run" / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    written = sum(line["bytes"] for line in map(json.loads, lines) if line["kind"] == "TableDescription")
    own = 0
    for state in federation.states.values():
        lines = (state / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
        own += sum(line["bytes"] for line in map(json.loads, lines) if line["kind"] == "TableDescription")
    assert metered == written == own > 0


def test_nothing_of_a_rare_level_leaves(three_sites, tmp_path):
    west = three_sites["west"].copy()
    west.loc[:3, "arm"] = "secret"
    federation = Federation(save(three_sites | {"west": west}, tmp_path), tmp_path)
    frames = []
    federation.transport.after = lambda site, payload: frames.append(payload) or payload
    with pytest.raises(FednsError, match="site 'west'"):
        federation.fit(STUDY)
    assert b"placebo" in b"".join(frames) and b"secret" not in b"".join(frames)
    counts = (west["arm"] == "secret").sum()
    described = [frame for frame in frames if b"TableDescription" in frame]
    assert len(described) == 3 and counts == 4


def test_a_site_that_hides_rare_levels_says_so(three_sites, tmp_path):
    west = three_sites["west"].copy()
    west.loc[west["arm"] == "low", "arm"] = "high"
    west.loc[:2, "arm"] = "low"
    paths = save(three_sites | {"west": west}, tmp_path)
    with pytest.raises(DataError, match="site 'west' hides levels of 'arm' that few of its rows have"):
        Federation(paths, tmp_path, rare_levels="blank").fit(STUDY)


def test_a_site_whose_table_no_longer_fits_refuses(three_sites, tmp_path):
    paths = save(three_sites, tmp_path)
    federation = Federation(paths, tmp_path)
    agreed_and_changed = []

    def change(site, exchange):
        if exchange == 3 and not agreed_and_changed:  # after opening, registering and describing
            three_sites["south"].drop(columns="age").to_csv(paths["south"], index=False)
            config = SiteConfig("south", "flower", tmp_path, DataSource("south.csv"), "state-south", Permissions(**OPEN))
            federation.transport.services["south"] = site_service(config).answer
            agreed_and_changed.append(site)
        return ""

    federation.transport.before = change
    with pytest.raises(FednsError, match="site 'south'"):
        federation.fit(STUDY)


def test_the_owner_may_agree_to_certain_studies_only(three_sites, tmp_path):
    paths = save(three_sites, tmp_path)
    pinned = f"{STUDY.digest}+fednewton:line_search=aggregate"
    assert Federation(paths, tmp_path, digests=(pinned,)).fit(STUDY).converged
    with pytest.raises(FednsError, match=re.escape(f'to agree to this one, write digests = ["{pinned}"]')):
        Federation(paths, tmp_path, digests=(STUDY.digest,)).fit(STUDY)
    with pytest.raises(FednsError, match="agreed to certain runs only"):
        Federation(paths, tmp_path, digests=("another",)).fit(STUDY)


def test_default_limits_of_a_site(three_sites, tmp_path):
    """Enough rows for the coefficients, and no rare level: a fit within what every site permits unless told otherwise."""
    everybody = {name: np.repeat(np.arange(len(frame)), 6) for name, frame in three_sites.items()}
    large = {name: frame.iloc[everybody[name]].reset_index(drop=True) for name, frame in three_sites.items()}
    paths = save(large, tmp_path)
    defaults = {one: getattr(Permissions(), one) for one in OPEN}
    assert Federation(paths, tmp_path, **defaults).fit(STUDY).converged


def test_a_method_that_runs_away_is_not_called_separation(three_sites):
    """Where steps overshoot the Hessian fades, too; the rows are not to blame."""
    fit = fit_study(replace(STUDY, method="fednewton:step_size=200", rounds=4), three_sites)
    assert not fit.converged and "separate" not in fit.reason


def test_the_example_runs_within_the_limits_that_sites_have_by_default(tmp_path):
    paths = {path.stem: path for path in write_example(tmp_path)}
    study = draft_study({name: read_frame(path) for name, path in paths.items()}).study
    federation = Federation(paths, tmp_path, **{one: getattr(Permissions(), one) for one in OPEN})
    assert federation.fit(study).coefficients.tobytes() == fit_study(study, paths).coefficients.tobytes()


def test_many_coefficients_are_fitted_with_auto(tmp_path):
    """A twin among them, seeds that sites keep to themselves: the pooled answer all the same."""
    random = np.random.default_rng(1)
    rows = pd.DataFrame(random.normal(size=(600, 28)), columns=[f"x{number}" for number in range(28)])
    rows["ill"] = np.where(random.random(600) < 1 / (1 + np.exp(-rows["x0"] + rows["x1"] / 2)), "case", "control")
    tables = {name: rows[place::3].assign(twin=lambda frame: 1 - frame["x0"]) for place, name in enumerate("abc")}
    formula = f"ill ~ {' + '.join(rows.columns[:28])} + twin"
    study = Study(formula, "binomial", event=("case",), non_event=("control",))
    paths = save(tables, tmp_path)
    fit = Federation(paths, tmp_path, job_seed=False).fit(study)
    assert fit.method == "auto" and fit.converged and [alias.name for alias in fit.aliased] == ["twin"]
    expected = sm.GLM((rows["ill"] == "case") * 1.0, sm.add_constant(rows.iloc[:, :28]), sm.families.Binomial())
    assert np.abs(fit.coefficients[:-1] - expected.fit(tol=1e-14).params).max() <= 1e-8
    assert (
        Federation(paths, tmp_path / "seeded").fit(study).coefficients.tobytes()
        == fit_study(study, paths).coefficients.tobytes()
    )
