"""Files that version 0.1.0 wrote are read, or refused with a sentence that says what to do.

`files_of_0_1` was made by 0.1.0: `fedns study init` and `fit` over the tables of `fedns study example`, `predict` of
twelve of their rows, `init-federation` (`site_every_permit.toml` has every line of [permit] without its comment sign),
and a run over two made-up sites that was interrupted after its third round.
"""

import csv
import json
import shutil
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from tests.federation.in_process import InProcess

from fedns.cli.app import main
from fedns.cli.serving import site_service, table_of
from fedns.core.errors import DataError
from fedns.federation.config import SiteConfig, read_experiment
from fedns.federation.coordinator.session import coordinate
from fedns.federation.permissions import Permissions
from fedns.studies.study import Study

FILES = Path(__file__).parent / "files_of_0_1"
SPENT_POINTS, SPENT_NUMBERS = 3, 57  # as 0.1.0 told of either site


@pytest.fixture
def run_fedns(capsys):
    """What a command says, which ends well."""

    def run(*words):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        assert not ended.value.code, capsys.readouterr().err
        return capsys.readouterr().out

    return run


@pytest.fixture
def copied(tmp_path):
    return Path(shutil.copytree(FILES, tmp_path / "files"))


def test_every_line_of_permit_is_read():
    read = SiteConfig.read(FILES / "site_every_permit.toml")
    stated = [line.split(" = ")[0] for line in (FILES / "site_every_permit.toml").read_text().splitlines() if " = " in line]
    assert {one.name for one in fields(Permissions)} <= set(stated)
    assert read.permit.digests == ("0" * 64,)
    assert (read.permit.categories, read.permit.handlers) == (("3",), ("register", "evaluate_locally"))
    stated_here = {"digests", "categories", "handlers"}
    own = Permissions()
    assert all(
        getattr(read.permit, one.name) == getattr(own, one.name) for one in fields(own) if one.name not in stated_here
    )


@pytest.mark.parametrize("name", ["drafted", "curved"])
def test_a_study_has_the_digest_that_owners_have_pinned(name):
    model = json.loads((FILES / f"model_{name}.json").read_text())
    assert Study.read(FILES / f"study_{name}.toml").digest == model["study_digest"]


@pytest.mark.parametrize("name", ["drafted", "curved"])
def test_a_model_predicts_what_it_predicted(name, tmp_path, run_fedns):
    run_fedns("predict", FILES / f"model_{name}.json", FILES / "new_patients.csv", "--out", tmp_path / "now.csv")
    files = FILES / f"predictions_{name}.csv", tmp_path / "now.csv"
    then, now = (list(csv.DictReader(path.read_text().splitlines())) for path in files)
    assert [row.keys() for row in now] == [row.keys() for row in then]
    for column in ("prediction", "std_error", "low", "high"):
        one, other = ([float(row[column]) for row in rows] for rows in (then, now))
        np.testing.assert_allclose(other, one, rtol=1e-12)


def test_an_experiment_of_either_kind_is_read():
    bare, study = read_experiment(FILES / "experiment.toml"), read_experiment(FILES / "experiment_study.toml")
    assert (bare.method, bare.rounds, bare.sites) == ("fednewton", 20, ("site-0", "site-1"))
    assert (study.sites, study.policy.quorum) == (("a", "b"), 2)


@pytest.mark.parametrize("site", ["site-0", "site-1"])
def test_a_budget_is_carried_over(copied, site):
    spent = table_of(SiteConfig.read(copied / "sites" / site / "site.toml")).budget.spent()
    # What was reserved on the disk of another machine counts as spent.
    assert spent.amounts.points >= SPENT_POINTS and spent.numbers >= SPENT_NUMBERS


def test_a_new_run_goes_on_with_the_budget(copied):
    configs = {site.name: SiteConfig.read(site / "site.toml") for site in sorted((copied / "sites").iterdir())}
    before = {name: table_of(config).budget.spent() for name, config in configs.items()}
    services = {name: site_service(config).answer for name, config in configs.items()}
    shutil.rmtree(copied / "run")
    result = coordinate(read_experiment(copied / "experiment.toml"), InProcess(services))
    assert result.history.converged
    for name, config in configs.items():
        files = list((config.folder / "state" / "budget").glob("*.jsonl"))
        assert len(files) == 1, "another file would be a budget that begins anew"
        assert table_of(config).budget.spent().numbers > before[name].numbers


def test_a_budget_that_is_spent_stays_spent(copied):
    site = copied / "sites" / "site-0"
    (site / "site.toml").write_text((site / "site.toml").read_text() + f"\n[permit]\npoints = {SPENT_POINTS}\n")
    other = SiteConfig.read(copied / "sites" / "site-1" / "site.toml")
    services = {config.name: site_service(config).answer for config in (SiteConfig.read(site / "site.toml"), other)}
    shutil.rmtree(copied / "run")
    with pytest.raises(Exception, match="R5"):
        coordinate(read_experiment(copied / "experiment.toml"), InProcess(services))


def test_an_interrupted_run_is_to_be_finished_under_its_version(copied):
    with pytest.raises(DataError, match="was written by another version of fedns: finish the run with that one"):
        coordinate(read_experiment(copied / "experiment.toml"), InProcess({}), resume=True)


def test_what_has_left_is_still_told(copied, run_fedns):
    told = run_fedns("what-left", copied / "sites" / "site-0" / "site.toml", "--out", copied / "told")
    assert str(SPENT_POINTS) in told
