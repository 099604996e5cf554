"""What commands hand on and print: options reach what they are for, and `--quiet` is quiet."""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import os
import platform
import threading
import urllib.request
from importlib.metadata import version

import numpy as np
import pytest
from tests.federation.in_process import run_of
from tests.studies.conftest import made_up
from tests.studies.situations import STUDY

import fedns
from fedns.cli import federation_commands
from fedns.cli.serving import table_of
from fedns.core.errors import DataError
from fedns.core.files import write_whole
from fedns.core.history import Record
from fedns.core.registry import Registry
from fedns.core.shards import Shards
from fedns.core.termination import Ending
from fedns.federation import config, doctor, site_command
from fedns.federation.coordinator.influence import SiteInfluence
from fedns.federation.coordinator.session import Result
from fedns.federation.coordinator.watching import SiteStatus
from fedns.federation.processes import free_port
from fedns.federation.protocol.transport import Engine
from fedns.federation.provision import init_federation
from fedns.lab.comparison.federation_demo import Demo, Shown
from fedns.methods import METHODS
from fedns.studies.fit import fit_study
from fedns.studies.inference.estimates import KINDS
from fedns.studies.inference.fitted import StudyFit
from fedns.studies.outputs import fit_csv, model


def history(ending=Ending.GRADIENT):
    return fedns.History("gd", [Record(7, 14, 0.7, 8, 8, 0.5, None, 1.5e-3)], np.zeros(3), ending, "why it ended", [])


@pytest.fixture
def demonstrated(monkeypatch, tmp_path, fedns_command):
    """`fedns demo-federation` that starts nothing: what it was asked for, and what it prints."""
    asked = []

    def run_demo(demo, watching):
        asked.append(demo)
        with watching("gd") as watchers:
            asked.append(len(watchers))
        yield Shown("gd", Result(history(), []), tmp_path / "report.html", True, True)

    monkeypatch.setattr(federation_commands, "run_demo", run_demo)
    return lambda *words: (fedns_command("demo-federation", *words), *asked[-2:])


def test_a_demonstration_is_of_what_was_asked_for(demonstrated, tmp_path):
    (code, out, _), demo, watchers = demonstrated()
    assert code == 0 and demo.folder.as_posix() == "runs/federation-flower" and watchers == 1
    assert (demo.engine, demo.sites, demo.methods, demo.dataset) == ("flower", 3, ("auto",), "digits")
    assert demo.sketch_size is None
    assert (demo.rounds, demo.wire, demo.overwrite) == (30, "float64", False)
    row = next(line for line in out.splitlines() if line.split()[:2] == ["gd", "7"])
    assert row.split()[:4] == ["gd", "7", "1.5e-03", "0.10"] and row.split()[4:6] == ["same", "same"]
    assert "gd on flower, 3 sites as processes of their own" in out and f"report: {tmp_path / 'report.html'}" in out
    words = (
        "--engine",
        "nvflare",
        "--sites",
        "5",
        "--methods",
        "gd, fednewton",
        "--dataset",
        "breast_cancer",
        "--rounds",
        "4",
    )
    words += ("--sketch-size", "9", "--wire", "float32", "--out", tmp_path / "d", "--overwrite", "--quiet")
    (code, out, _), demo, watchers = demonstrated(*words)
    assert (code, out, watchers) == (0, "", 0)
    expected = Demo("nvflare", tmp_path / "d", 5, ("gd", "fednewton"), "breast_cancer", 4, "float32", 9, overwrite=True)
    assert demo == expected
    federated = {name for name, kind in METHODS.items() if not kind.pooled}
    assert set(demonstrated("--methods", "all")[1].methods) == federated and "newton" not in federated


def test_sketches_of_a_demonstration_have_the_rows_that_the_rule_chooses():
    """Four effective dimensions over all sites, found from eigenvalues here, and never more than a Hessian has columns."""
    from fedns.lab.comparison.federation_demo import advised_size

    random, problem = np.random.default_rng(0), fedns.Problem(penalty=fedns.Ridge(1e-3))
    rows = random.normal(size=(600, 40)) * np.geomspace(1.0, 1e-3, 40)
    eigenvalues = np.linalg.eigvalsh(rows.T @ rows / 600 / 4)  # the logistic loss curves by a quarter at 0
    for sites in (1, 3, 12):
        shards = Shards.from_arrays(rows, random.choice([-1.0, 1.0], 600), [600 // sites] * sites)
        dimension = float((eigenvalues / (eigenvalues + 1e-3)).sum())
        assert abs(advised_size(problem, shards) - min(40, 4 * dimension / sites)) < 1.5


def test_a_demonstration_replaces_what_it_made_and_nothing_else(tmp_path, monkeypatch):
    from fedns.lab.comparison import federation_demo

    monkeypatch.setattr(federation_demo, "init_federation", lambda folder, engine, names, server: [
        (folder / "sites" / name).mkdir(parents=True) for name in names
    ])  # fmt: skip
    demo = Demo("flower", tmp_path / "d", 2)
    federation_demo.prepare(demo)
    (demo.folder / "notes.txt").write_text("mine")
    old = demo.folder / "sites" / "old"
    old.mkdir()
    with pytest.raises(fedns.ConfigError, match="holds an earlier demonstration"):
        federation_demo.prepare(demo)
    federation_demo.prepare(Demo("flower", tmp_path / "d", 2, overwrite=True))
    assert (demo.folder / "notes.txt").read_text() == "mine" and not old.exists()
    assert (demo.folder / "sites" / "site-2" / "rows.npz").is_file()


def test_a_coordinator_is_watched_measured_and_resumed_as_asked(tmp_path, monkeypatch, fedns_command):
    (tmp_path / "experiment.toml").write_text('engine = "flower"\nsites = ["north", "south"]\n', encoding="utf-8")
    seen = []

    class Transport:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            seen.append("closed")

    def coordinate(experiment, transport, *, resume, watchers):
        if len(watchers) == 2:
            for watcher in watchers:
                watcher.on_start(statuses)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                seen.append("fedns_site_up" in answer.read().decode())
        seen.append((resume, len(watchers), isinstance(transport, Transport)))
        return Result(history(), statuses, [SiteInfluence("north", 0.5, change=9.0, distance=4.0, apart=True)])

    port, statuses = free_port(), [SiteStatus("north", state="answered", answers=14), SiteStatus("south")]
    monkeypatch.setattr(federation_commands, "read_experiment", lambda path: run_of("gd", 2, home=tmp_path, out="run"))
    monkeypatch.setattr(federation_commands, "open_transport", lambda spec, logs: Transport())
    monkeypatch.setattr(federation_commands, "coordinate", coordinate)
    monkeypatch.setattr(federation_commands, "write_report", lambda spec, result: tmp_path / "report.html")
    code, out, _ = fedns_command("coordinate", tmp_path / "experiment.toml", "--metrics-port", port)
    assert os.umask(0o22) == 0o77  # nobody else may read what is written
    assert fedns_command("coordinate", tmp_path / "experiment.toml", "--resume", "--quiet") == (0, "", "")
    assert code == 0 and seen == [True, (False, 2, True), "closed", (True, 0, True), "closed"]
    for words in ("north", "14", "why it ended", "differ by more than chance", f"report: {tmp_path / 'report.html'}"):
        assert words in out


def test_pages_and_help(monkeypatch, fedns_command):
    monkeypatch.setattr("fedns.lab.comparison.method_pages.methods_page", lambda: "a page\n")
    assert fedns_command("methods", "--markdown") == (0, "a page\n", "")
    for words in ((), ("study",), ("data",), ("--help",)):
        code, out, _ = fedns_command(*words)
        assert code == 0 and out.startswith(f"Usage: fedns {words[0] if words and words[0][0] != '-' else ''}".rstrip())
    fetched = []
    monkeypatch.setattr(
        "fedns.lab.data.collection.fetch.fetch", lambda names, base_url: fetched.append((names, base_url)) or ["a", "b"]
    )
    assert fedns_command("data", "fetch", "x", "y", "--url", "http://127.0.0.1") == (0, "a\nb\n", "")
    assert fetched == [(["x", "y"], "http://127.0.0.1")]


def test_what_left_says_what_the_ledger_of_this_site_has(tmp_path, fedns_command):
    (tmp_path / "site.toml").write_text('name = "aarau"\nengine = "flower"\n[data]\ndataset = "t.csv"\n', encoding="utf-8")
    line = {"direction": "uplink", "kind": "Registration", "purpose": "register", "fields": {}, "bytes": 17}
    write_whole(tmp_path / "state" / "ledger.jsonl", 3 * (json.dumps(line) + "\n"))
    code, out, _ = fedns_command("what-left", tmp_path / "site.toml", "--out", tmp_path / "out")
    assert code == 0 and "what left aarau: 3 messages, 51 B" in out and "Registration, 3 times" in out
    assert f"page: {tmp_path / 'out' / 'what-left.html'}" in out
    assert "All runs so far" in (tmp_path / "out" / "what-left" / "aarau.html").read_text(encoding="utf-8")


def test_the_model_of_a_fit_has_what_the_fit_has(monkeypatch):
    fit = fit_study(STUDY, made_up())
    stored, last = model(fit), fit.history.records[-1]
    assert stored["coefficients"] == dict(zip(fit.names, fit.coefficients.tolist(), strict=True))
    assert (stored["ending"], stored["reason"], stored["study_digest"]) == (fit.ending.key, fit.reason, fit.study.digest)
    assert stored["schema_digest"] == fit.agreed.design.agreement.digest and "not_converged" not in stored
    assert stored["notes"] == [*fit.remarks, *fit.notes, *fit.prediction_notes] and stored["left_out"] == []
    told = {name: stored["provenance"][name] for name in ("method", "rounds", "exchanges", "uplink_bytes", "downlink_bytes")}
    assert tuple(told.values()) == (fit.method, last.round, last.exchanges, fit.uplink_bytes, fit.downlink_bytes)
    assert stored["provenance"]["objective"] == last.objective
    assert stored["provenance"]["versions"] == {
        "fedns": fedns.__version__,
        "Python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy", "numba")},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
    assert stored["provenance"]["sites"] == [{"name": site.site, "rows": site.used} for site in fit.sites]
    inference = stored["inference"]
    assert inference["names"] == list(fit.names) and inference["dispersion"] == fit.inference.dispersion
    assert {kind: np.array(found).tolist() for kind, found in inference["covariance"].items()} == {
        kind: fit.covariance(kind).tolist() for kind in KINDS
    }
    assert [test["term"] for test in inference["terms"]] == [test.term for test in fit.term_tests()]
    sites = inference["sites"]
    assert list(sites) == [site.site for site in fit.sites]
    for place, own in enumerate(sites.values()):
        for name, values in (
            ("coefficients", fit.site_estimates.coefficients),
            ("std_errors", fit.site_estimates.standard_errors),
            ("without", fit.site_estimates.without),
        ):
            expected = [value if math.isfinite(value) else None for value in values[place].tolist()]
            assert own[name] == expected

    plain = fit_csv(fit_study(fedns.Study("score ~ age", "gaussian"), made_up()))
    assert all(line["ratio"] == "" != line["coefficient"] for line in csv.DictReader(io.StringIO(plain)))
    lines = list(csv.DictReader(io.StringIO(fit_csv(fit, "HC1"))))
    for line, row in zip(lines, fit.rows("HC1"), strict=True):
        assert [float(line[name]) for name in ("ratio", "ratio_low", "ratio_high")] == list(row.ratios)
        assert (float(line["coefficient"]), float(line["std_error"])) == (row.coefficient, row.std_error)

    def told_of_some(self, kind="model"):
        if kind == "HC0":
            raise DataError("a site did not tell")
        return fit.inference.covariance(kind)

    monkeypatch.setattr(StudyFit, "covariance", told_of_some)
    assert set(model(fit)["inference"]["covariance"]) == set(KINDS) - {"HC0"}


def test_a_site_says_what_it_reads_who_it_is_and_how_it_ends_before_it_serves(tmp_path, monkeypatch, caplog, fedns_command):
    said = []
    postman = Engine("postman", "json", None, lambda credentials, factory, path: said.extend(caplog.messages), None)
    monkeypatch.setattr(config, "TRANSPORTS", Registry("engine", "fedns.none", Engine, (postman,)))
    monkeypatch.setattr("fedns.cli.federation.log_to_console", lambda: None)
    caplog.set_level(logging.INFO, logger="fedns.site")
    site = tmp_path / "site.toml"
    site.write_text('name = "aarau"\nengine = "postman"\n[data]\ndataset = "t.csv"\n', encoding="utf-8")
    before = os.umask(0o22)
    try:
        assert fedns_command("site", site) == (0, "", "")
        assert os.umask(0o22) == 0o77  # nobody else may read what is written
    finally:
        os.umask(before)
    assert said == [f"fedns {fedns.__version__} reads {site}", "site aarau on postman; Ctrl-C ends it"]


def test_a_process_that_still_compiles_is_left_at_once(monkeypatch):
    left = []
    monkeypatch.setattr(os, "_exit", left.append)
    site_command.leave_if_compiling(143)
    assert left == []
    over = threading.Event()
    thread = threading.Thread(target=over.wait, args=(60,), name=site_command.COMPILING)
    thread.start()
    site_command.leave_if_compiling(143)
    over.set()
    thread.join()
    assert left == [143]


def test_a_coordinator_without_its_credentials_is_examined_to_the_end(tmp_path):
    pytest.importorskip("flwr")
    init_federation(tmp_path / "f", "flower", ["north"], f"localhost:{free_port()}")
    file = tmp_path / "f" / "coordinator" / "experiment.toml"
    in_order = [finding.what for finding in doctor.examine(file, table_of) if not finding.fault]
    for what in ("every site has a key here", "private key", "certificate server.crt", "credentials", "settings"):
        assert what in in_order
    (versions,) = [what for what in in_order if what.endswith(": the same everywhere?")]
    assert versions.startswith(f"fedns {fedns.__version__}, ") and f", flwr {version('flwr')}:" in versions
    assert "processor" not in versions  # which may well differ
    assert any(what.startswith("port ") for what in in_order) and any(what.startswith("disk: ") for what in in_order)
    (tmp_path / "f" / "coordinator" / "credentials" / "server.crt").unlink()
    faults = [finding.what for finding in doctor.examine(file, table_of) if finding.fault]
    assert faults == ["credentials"]
