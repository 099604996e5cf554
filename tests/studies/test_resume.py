"""A study over sites that was killed goes on to the same bits, whoever was killed and when."""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
from dataclasses import replace

import pytest
from tests.processes import PATIENCE_SECONDS, start, wait_until
from tests.studies.real_sites import place_table, provision
from tests.studies.situations import STUDY, save
from tests.studies.test_federated import Federation

from fedns.core.errors import ConfigError, DataError
from fedns.federation.coordinator.state import CHECKPOINT_FILE
from fedns.lab.comparison.federation_demo import site_processes, start_demo_site
from fedns.studies.federated import fit_federation, forget_fit
from fedns.studies.fit import fit_study

SLOWLY = replace(STUDY, method="fednewton:step_size=0.5")  # so that there are rounds to be killed in
METHODS = ("default", SLOWLY.method, "auto", "fedndes:sketch=srht;sketch_size=4")
ALWAYS = {("default", 8), ("auto", 13)}
KILLS = [
    pytest.param(method, exchange, marks=() if (method, exchange) in ALWAYS else pytest.mark.nightly)
    for method in METHODS
    for exchange in (3, 8, 13, 19)
]


class Killed(BaseException):
    """As a signal would be: nothing in the library waits for it."""


@pytest.mark.parametrize(("method", "killed_at"), KILLS)
def test_a_coordinator_that_was_killed_goes_on(method, killed_at, three_sites, tmp_path):
    study, paths = replace(STUDY, method=method), save(three_sites, tmp_path)
    federation = Federation(paths, tmp_path)

    def kill(site, exchange):
        if exchange == killed_at and site == "south":  # some sites have answered, others have not been asked
            raise Killed
        return ""

    federation.transport.before = kill
    try:
        federation.fit(study)
    except Killed:
        resume = (tmp_path / "run" / CHECKPOINT_FILE).exists()
        again = Federation(paths, tmp_path)  # new processes at the sites, too: what they remember is on disk
        found = fit_federation(study, again.spec, again.transport, tmp_path / "run", resume=resume)
        here = fit_study(study, paths)
        assert found.coefficients.tobytes() == here.coefficients.tobytes()
        assert (found.reason, found.notes, found.names) == (here.reason, here.notes, here.names)
        assert [r.gradient_norm for r in found.history.records] == [r.gradient_norm for r in here.history.records]
        written = [json.loads(line)["round"] for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
        assert written == [record.round for record in here.history.records]
        assert not (tmp_path / "run" / CHECKPOINT_FILE).exists()
    else:
        assert killed_at > federation.transport.exchanges


def test_what_a_fit_goes_on_from_stays_until_its_outputs_are_written(three_sites, tmp_path):
    federation, folder = Federation(save(three_sites, tmp_path), tmp_path), tmp_path / "run"
    first = fit_federation(STUDY, federation.spec, federation.transport, folder, keep=True)
    again = fit_federation(STUDY, federation.spec, federation.transport, folder, keep=True, resume=True)
    assert again.coefficients.tobytes() == first.coefficients.tobytes()
    sites = json.loads((folder / "sites.json").read_text(encoding="utf-8"))
    assert [site["name"] for site in sites] == ["north", "south", "west"] and all(site["answers"] > 9 for site in sites)
    forget_fit(folder)
    assert not (folder / CHECKPOINT_FILE).exists()


def test_sites_that_go_and_come_back(three_sites, tmp_path):
    paths = save(three_sites, tmp_path)
    federation, others = Federation(paths, tmp_path), []
    federation.spec = replace(federation.spec, policy=replace(federation.spec.policy, patience_seconds=30.0))

    def lose(site, exchange):
        if exchange % 5 == 0 and site == "west":
            others.append(Federation(paths, tmp_path))
            federation.transport.services["west"] = others[-1].transport.services["west"]
            return "west was killed"
        return ""

    federation.transport.before = lose
    assert federation.fit(SLOWLY).coefficients.tobytes() == fit_study(SLOWLY, paths).coefficients.tobytes()
    assert len(others) > 3


def test_an_interrupted_fit_is_not_thrown_away(three_sites, tmp_path):
    paths = save(three_sites, tmp_path)
    federation = Federation(paths, tmp_path)
    with pytest.raises(DataError, match="nothing to resume, start without --resume"):
        fit_federation(STUDY, federation.spec, federation.transport, tmp_path / "run", resume=True)

    def kill(site, exchange):
        if exchange == 12:
            raise Killed
        return ""

    federation.transport.before = kill
    with pytest.raises(Killed):
        federation.fit(SLOWLY)
    with pytest.raises(ConfigError, match="holds a fit that was interrupted: go on with --resume, or give another --out"):
        federation.fit(SLOWLY)
    three_sites["west"].iloc[:-3].to_csv(paths["west"], index=False)
    federation.transport.before = lambda site, exchange: ""
    with pytest.raises(ConfigError, match="what was agreed with the sites has changed since the run"):
        fit_federation(SLOWLY, federation.spec, federation.transport, tmp_path / "run", resume=True)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [pytest.param("flower", marks=pytest.mark.nightly), "nvflare"])
def test_processes_that_are_killed(engine, three_sites, tmp_path):
    if importlib.util.find_spec({"flower": "flwr"}.get(engine, engine)) is None:
        pytest.skip(f"{engine} is not installed")
    folder, paths = tmp_path / "trial", save(three_sites, tmp_path)
    provision(folder, engine, tuple(paths))
    for name, path in paths.items():
        place_table(folder / "sites" / name, path.read_bytes())
    study, out = tmp_path / "study.toml", tmp_path / "fit"
    study.write_text(
        f'formula = "{STUDY.formula}"\nfamily = "binomial"\n[outcome]\nevent = ["case"]\nnon_event = ["control"]\n'
        f'[fit]\nmethod = "{SLOWLY.method}"\n',
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "fedns.cli", "fit", study, "--federation", folder, "--out", out]
    with site_processes(folder) as running, (tmp_path / "output.txt").open("wb") as output:
        fitting = start(command, stdout=output, stderr=output)
        wait_until(lambda: _rounds(out) > 3, "four rounds are made")
        fitting.send_signal(signal.SIGKILL)
        fitting.wait(PATIENCE_SECONDS)
        running["south"].send_signal(signal.SIGKILL)
        running["south"].wait(PATIENCE_SECONDS)
        running["south"] = start_demo_site(folder / "sites" / "south")
        made = _rounds(out)
        again = start([*command, "--resume"], stdout=output, stderr=output)
        assert again.wait(PATIENCE_SECONDS) == 0, (tmp_path / "output.txt").read_text()
    model = json.loads((out / "model.json").read_text(encoding="utf-8"))
    here = fit_study(SLOWLY, paths)
    assert list(model["coefficients"].values()) == here.coefficients.tolist() and made < len(here.history.records)


def _rounds(out) -> int:
    path = out / "rounds.jsonl"
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0
