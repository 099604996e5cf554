"""Disks that are full and folders that cannot be written, at both ends: one sentence, and nothing that was there is lost."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import make_shards
from tests.federation.in_process import Federation, ends_with, run_of
from tests.federation.site.test_service import Site
from tests.federation.troubled_disk import FILE_SYSTEMS, TROUBLES, federation

from fedns.core.history import History
from fedns.federation.coordinator import cohort, link
from fedns.federation.protocol.packets import ANSWER, UNABLE
from fedns.federation.site.budget import BUDGET_FOLDER, Budget
from fedns.federation.site.secret_seed import SECRET_FILE, site_secret
from fedns.reports.run_page import REPORT_FILE
from fedns.runs.over_sites import Policy

ROOT = Path(__file__).parents[2]
WORDS = {
    "full": r"OSError: [Errno 27] File too large|site 'site-",
    "coordinator read-only": r"PermissionError: [Errno 13] Permission denied",
    "site read-only": "FederationError: round 3 has 2 of 3 sites and needs 3: site 'site-1': cannot answer now: "
    "its disk cannot be used: permission denied",
    "full file system": r"[Errno 28] No space left on device|site 'site-",
    "read-only file system": r"[Errno 30] Read-only file system|site 'site-",
}
OWN_MOUNTS = ["unshare", "--map-root-user", "--mount"]  # what is mounted there nobody else sees


def can_mount():
    return shutil.which("unshare") and not subprocess.run([*OWN_MOUNTS, "true"], capture_output=True, check=False).returncode


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return federation(tmp_path_factory.mktemp("undisturbed")).start()


@pytest.mark.skipif(sys.platform != "linux", reason="limits and capabilities as Linux has them")
@pytest.mark.parametrize("trouble", [*TROUBLES, *FILE_SYSTEMS])
def test_trouble_with_the_disk_stops_a_run_with_a_sentence_and_loses_nothing(tmp_path, trouble, undisturbed):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "tests.federation.troubled_disk", str(folder), trouble]
    if trouble in FILE_SYSTEMS:
        if not can_mount():
            pytest.skip("no file system can be mounted here")
        command = [*OWN_MOUNTS, *command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.strip()
    if trouble in FILE_SYSTEMS:
        folder = Path(f"{folder}.kept")
    print(said)
    assert len(said.splitlines()) == 1 and any(words in said for words in WORDS[trouble].split("|")), said
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert not list(folder.rglob("*.partial"))
    resumed = federation(folder).start(resume=True)
    assert resumed.coefficients.tobytes() == undisturbed.coefficients.tobytes()


FULL = Path("/dev/full")
SHARDS = make_shards(sizes=(90, 60, 150))
PATIENT = Policy(patience_seconds=600.0)  # a test that used it up would not end in time
WORDS_OF_SITE = "its disk cannot be used: no space left on device"
on_linux = pytest.mark.skipif(not FULL.exists(), reason="/dev/full as Linux has it")


def partial_of(path):
    """What is written before it takes the place of this file."""
    return path.with_name(f"{path.name}.{os.getpid()}.partial")


@contextlib.contextmanager
def full(path):
    """Writing to this file meets a full disk, as often as it is tried."""
    kept = path.with_name(f"{path.name}.kept")
    if path.exists():
        path.rename(kept)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(FULL)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        if kept.exists():
            kept.rename(path)


def spent(folder):
    """The numbers and the requests of every budget of a site."""
    found = [Budget(folder, path.stem).spent() for path in sorted((folder / BUDGET_FOLDER).glob("*.jsonl"))]
    return [(one.numbers, sorted(one.points), sum(one.asked.values())) for one in found]


def files_of(site):
    """All that a site writes for an answer."""
    (budget,) = [path for path in (site.folder / BUDGET_FOLDER).glob("*.jsonl") if not path.stem.endswith(".rows")]
    run = next(site.folder.glob("*.npz"))
    return {"memory": partial_of(run), "budget": budget, "ledger": site.folder / "ledger.jsonl"}


@on_linux
@pytest.mark.parametrize("which", ["memory", "budget", "ledger"])
def test_an_answer_that_cannot_be_written_down_does_not_leave_and_costs_nothing(which, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="fedns.site")
    troubled, quiet = Site(tmp_path / "troubled"), Site(tmp_path / "quiet")
    for site in (troubled, quiet):
        site.open()
        assert site.learn(2, 1).kind == ANSWER
    path = files_of(troubled)[which]
    if which == "budget":
        troubled.restart()  # as it is, the file is open
    for _ in range(3):
        with full(path):
            found = troubled.learn(3, 1, w=0.3)
            assert (found.kind, found.body.decode()) == (UNABLE, WORDS_OF_SITE)
    owner = [record.getMessage() for record in caplog.records if "requests wait" in record.getMessage()]
    assert len(owner) == 1 and "No space left on device" in owner[0] and str(troubled.folder) in owner[0]
    answer = troubled.learn(3, 1, w=0.3)
    assert answer == quiet.learn(3, 1, w=0.3) and answer.kind == ANSWER
    assert sum(bool(re.fullmatch(r"the disk is well again, after \d+ s", line)) for line in caplog.messages) == 1
    assert spent(troubled.folder) == spent(quiet.folder)
    assert not list(troubled.folder.glob("*.partial")) and not (troubled.folder / "probe").exists()
    lines = troubled.ledger()  # every one of which can be read
    assert sum(line["bytes"] for line in lines) == sum(line["bytes"] for line in quiet.ledger())


@on_linux
def test_nothing_is_computed_on_a_disk_that_was_full_a_moment_ago(tmp_path):
    site = Site(tmp_path)
    site.open()
    with full(tmp_path / "ledger.jsonl"):
        assert site.learn(2, 1).kind == UNABLE
    before = spent(tmp_path)
    with full(partial_of(tmp_path / "probe")):
        assert site.learn(3, 1, w=0.3).kind == UNABLE
    assert spent(tmp_path) == before
    assert site.learn(3, 1, w=0.3).kind == ANSWER


@on_linux
def test_half_a_secret_is_not_left(tmp_path):
    path = tmp_path / SECRET_FILE
    opened = os.open

    def half_full(file, *rest):
        """The file is made, and there is no room for what is in it."""
        os.close(opened(file, *rest))
        return opened(FULL, os.O_WRONLY)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", half_full)
        with pytest.raises(OSError, match="No space left"):
            site_secret(tmp_path)
    assert not path.exists() and len(site_secret(tmp_path)) == 32


@on_linux
@pytest.mark.parametrize("absent", ["wait", "renormalise"])
def test_a_site_whose_disk_is_full_is_away_until_there_is_room(absent, tmp_path, monkeypatch):
    """Waited for, the run has the bits and bytes of a quiet one; left out, it is as if the site had not answered."""
    for module in (link, cohort):
        monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    policy = replace(PATIENT, absent=absent)
    troubled, quiet = (Federation(SHARDS, tmp_path / name, run_of("fednl", rounds=4), policy) for name in ("full", "quiet"))
    honest, tried = troubled.transport.services["site-1"], []

    def answer(frame):
        if not 7 <= troubled.transport.exchanges <= 9:  # three in a row
            return honest(frame)
        tried.append(frame)
        with full(partial_of(next((tmp_path / "full" / "site-1").glob("*.npz")))):
            return honest(frame)

    troubled.transport.services["site-1"] = answer
    if absent == "renormalise":
        quiet.transport.before = lambda site, exchange: "gone" if site == "site-1" and 7 <= exchange <= 9 else ""
    there, here = troubled.start(), quiet.start()
    assert there.coefficients.tobytes() == here.coefficients.tobytes() and there.ledger == here.ledger
    assert there.evaluation_bytes.tolist() == here.evaluation_bytes.tolist()
    assert tried and spent(tmp_path / "full" / "site-1") == spent(tmp_path / "quiet" / "site-1")
    events = [(one["event"], one["site"], one.get("reason", "")) for one in troubled.events if "site" in one]
    assert ("away", "site-1", f"cannot answer now: {WORDS_OF_SITE}") in events and ("back", "site-1", "") in events
    assert troubled.cohort.link.journal.statuses[1].rejected == 0


def over_sites(folder, policy=PATIENT, method="fednl"):
    spec = run_of(method, rounds=4, home=folder, out="run", policy=policy)
    return spec, Federation(SHARDS, folder, spec, policy).transport


@on_linux
def test_a_site_whose_disk_stays_full_ends_the_run_with_its_reason_and_it_can_go_on(tmp_path, quiet):
    spec, transport = over_sites(tmp_path, Policy(patience_seconds=0.0))
    honest = transport.services["site-1"]

    def answer(frame):
        if transport.exchanges < 7:
            return honest(frame)
        with full(partial_of(next((tmp_path / "site-1").glob("*.npz")))):
            return honest(frame)

    transport.services["site-1"] = answer
    assert ends_with(spec, transport) == 5
    assert WORDS_OF_SITE in (tmp_path / "run" / REPORT_FILE).read_text()
    transport.services["site-1"] = honest
    same_as_a_quiet_run(spec, transport, quiet)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """The same runs, whose disks are well."""
    histories = {}
    for method in ("fednl", "fednewton"):
        spec, transport = over_sites(tmp_path_factory.mktemp(method), method=method)
        assert ends_with(spec, transport) == 1
        histories[method] = History.load(spec.folder / "history.jsonl")
    return histories


def same_as_a_quiet_run(spec, transport, quiet):
    assert ends_with(spec, transport, "--resume") == 1  # all rounds are used
    there, here = History.load(spec.folder / "history.jsonl"), quiet[spec.method]
    assert there.coefficients.tobytes() == here.coefficients.tobytes() and there.ledger == here.ledger
    for name in ("log.jsonl", "ledger.jsonl", "rounds.jsonl"):
        assert all(json.loads(line) for line in (spec.folder / name).read_text().splitlines())


@on_linux
@pytest.mark.parametrize(
    "name",
    ["checkpoint", "epoch", "ledger.jsonl"]
    + [pytest.param(name, marks=pytest.mark.nightly) for name in ("log.jsonl", "rounds.jsonl", "history.jsonl")],
)
def test_a_coordinator_whose_disk_is_full_says_so_and_goes_on_once_there_is_room(name, tmp_path, capsys, quiet):
    spec, transport = over_sites(tmp_path, replace(PATIENT, absent="renormalise"), "fednewton")
    path, held = spec.folder / name, contextlib.ExitStack()

    def before(site, exchange):
        if exchange == 8 and site == "site-1":
            held.enter_context(full(partial_of(path) if name in ("checkpoint", "epoch", "history.jsonl") else path))
            return "gone" if name == "epoch" else ""  # so that the round is repeated, in an epoch of its own
        return ""

    transport.before = before
    with held:
        assert ends_with(spec, transport) == 8
    said = capsys.readouterr().err
    assert said == (
        f"fedns: error: the disk of this coordinator cannot be used ('{path}': no space left on device): "
        "make room there, or mend it, then go on with --resume\n"
    )
    transport.before = lambda site, exchange: ""
    if name != "epoch":  # where a round was made without a site
        same_as_a_quiet_run(spec, transport, quiet)


@on_linux
def test_a_disk_that_is_full_before_the_first_round_leaves_nothing_to_go_on_with(tmp_path, capsys):
    spec, transport = over_sites(tmp_path)
    with full(partial_of(spec.folder / "checkpoint")):
        assert ends_with(spec, transport) == 2
    assert "--resume" not in capsys.readouterr().err
    assert ends_with(spec, transport) == 1
