"""How runs over sites end: as the simulator says, with a report, an exit status, and no question asked twice in vain."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.federation.in_process import OPEN_HANDED, Federation, ends_with, run_of, services

from fedns.core.messages import WIRE_PRECISIONS
from fedns.core.messages.encoding import Envelope, encode
from fedns.core.termination import Ending
from fedns.federation.coordinator.session import coordinate
from fedns.federation.permissions import Permissions
from fedns.federation.processes import EngineError, EngineLost
from fedns.federation.protocol.packets import ASK, OPEN, OVERFLOW, Packet
from fedns.federation.site.explain import caution_of_size
from fedns.models.evaluation import EvaluationPoint
from fedns.reports.run_page import COEFFICIENTS_FILE, REPORT_FILE
from fedns.runs.builder import algorithm_of, caution, problem_of
from fedns.runs.over_sites import Policy
from fedns.runs.results import COLUMNS
from fedns.simulation.simulator import simulate

WIDE = make_shards(rows=600, columns=40, sizes=(300, 300))
PATIENT = Policy(patience_seconds=600.0)  # a test that used it up would not end in time


def wide_run(folder, **changes):
    """Two sites, sketches of 4 rows, 41 coefficients: Newton's step is wrong in 33 directions, and the run diverges."""
    spec = run_of("fedns", 2, sketch_size=4, strength=1e-3, rounds=30, home=folder, out="run", policy=PATIENT, **changes)
    return spec, Federation(WIDE, folder, spec, PATIENT).transport


def test_a_run_that_diverges_ends_in_the_simulators_round_with_its_last_good_coefficients(tmp_path):
    spec, transport = wide_run(tmp_path)
    here = simulate(algorithm_of(spec), problem_of(spec), WIDE, rounds=30, seed=spec.seed)
    assert here.ending is Ending.DIVERGED
    assert ends_with(spec, transport) == 4
    report = (tmp_path / "run" / REPORT_FILE).read_text()
    assert f"Ended after {here.records[-1].round} rounds" in report and "diverged in round" in report
    with (tmp_path / "run" / COEFFICIENTS_FILE).open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [float(line["coefficient"]) for line in lines] == here.coefficients.tolist()
    assert tuple(lines[0]) == COLUMNS and [line["name"] for line in lines[:2]] == ["x0", "x1"]
    assert lines[-1]["name"] == "Intercept"


def test_no_request_that_every_site_answers_with_huge_numbers_is_repeated(tmp_path):
    spec, transport = wide_run(tmp_path)
    asked = []
    transport.before = lambda site, exchange: asked.append((site, exchange)) or ""
    assert coordinate(spec, transport).history.ending is Ending.DIVERGED
    assert len(asked) == len(set(asked)) == 2 * transport.exchanges


def test_an_answer_of_a_site_that_is_not_finite_is_called_so(tmp_path):
    spec = run_of("fednewton", 1, loss="poisson", intercept=False)
    counts = replace(make_shards(rows=90, sizes=(90,)), targets=np.ones(90))
    site = services(counts, tmp_path, OPEN_HANDED)["site-0"]
    site.answer(Packet(OPEN, bytes(16), 0, 1, 0, 0, spec.agreed()).encode())
    body = encode(EvaluationPoint(np.full(13, 1e4)), Envelope(0, handler="evaluate_locally"), WIRE_PRECISIONS["float64"])
    answer = Packet.decode(site.answer(Packet(ASK, bytes(16), 0, 2, 0, 0, body).encode()))
    assert answer.kind == OVERFLOW and b"LocalEvaluation holds NaN or infinite values" in answer.body


def test_a_refusal_ends_the_run_at_once_with_a_report(tmp_path):
    spec, _ = wide_run(tmp_path)
    transport = Federation(WIDE, tmp_path / "strict", spec, PATIENT, Permissions(job_seed=True)).transport
    assert ends_with(spec, transport) == 7
    assert "refused after round 0" in (tmp_path / "run" / REPORT_FILE).read_text()


@pytest.mark.parametrize(
    ("trouble", "ending", "status"),
    [("no answer within 1 s", Ending.SITES_LOST, 5), (EngineLost("SuperLink ended"), Ending.ENGINE_LOST, 6)],
)
def test_a_run_that_loses_sites_or_engine_reports_its_last_whole_round(trouble, ending, status, tmp_path):
    spec = run_of("fednewton", 2, rounds=9, home=tmp_path, out="run", policy=Policy(patience_seconds=0.0))
    transport = Federation(make_shards(sizes=(150, 150)), tmp_path, spec).transport

    def before(site, exchange):
        if exchange < 8:
            return ""
        if isinstance(trouble, Exception):
            raise trouble
        return trouble

    transport.before = before
    assert ends_with(spec, transport) == status
    head = json.loads((tmp_path / "run" / "history.jsonl").read_text().splitlines()[0])
    assert head["ending"] == ending.key
    transport.before = lambda site, exchange: ""
    resumed = coordinate(spec, transport, resume=True).history
    alone = replace(spec, home=tmp_path / "whole")
    whole = coordinate(alone, Federation(make_shards(sizes=(150, 150)), tmp_path / "whole", alone).transport).history
    assert resumed.coefficients.tobytes() == whole.coefficients.tobytes()


@pytest.mark.parametrize(
    ("trouble", "status", "words"),
    [
        ("it is not connected", 5, "site 'site-0': it is not connected; site 'site-1': it is not connected"),
        (EngineLost("SuperLink ended with code 9"), 6, "SuperLink ended with code 9"),
        (EngineError("port 9092 is taken"), 2, "port 9092 is taken"),
        ("strict", 7, "site 'site-1': refuses: R2: "),
    ],
)
def test_a_run_that_never_began_ends_with_the_status_of_its_reason(trouble, status, words, tmp_path, capsys):
    spec, transport = wide_run(tmp_path)
    spec = replace(spec, policy=Policy(patience_seconds=0.0))
    if trouble == "strict":
        rules = replace(OPEN_HANDED, smallest_rows=10_000)
        transport = Federation(WIDE, tmp_path / "strict", spec, PATIENT, rules).transport

    def before(site, exchange):
        if isinstance(trouble, Exception):
            raise trouble
        return trouble if trouble != "strict" else ""

    transport.before = before
    assert ends_with(spec, transport) == status
    said = capsys.readouterr().err
    assert said.startswith("fedns: error: ") and words in said and len(said.splitlines()) == 1
    assert not (tmp_path / "run" / REPORT_FILE).exists()


def test_sketches_with_too_few_rows_for_the_columns_get_a_sentence():
    algorithm = algorithm_of(run_of("fedns", 2, sketch_size=16))
    assert "take sketch_size >= 35" in caution(algorithm, 2, 69)
    assert caution(algorithm, 5, 69) == caution(algorithm_of(run_of("auto", 2)), 2, 69) == ""


@pytest.mark.parametrize(
    ("method", "changes", "rows", "words"),
    [
        ("fedndes", {"sketch_size": 16}, 110, "more than 27 .* fedndes asks for 32: take sketch_size <= 13"),
        ("fedndes:second_size=40", {"sketch_size": 16}, 110, "asks for 40: take sketch_size <= 27"),
        ("fedns", {"sketch_size": 16}, 40, "fedns asks for 16: take sketch_size <= 10"),
        ("fedns", {"sketch_size": 16, "sketch": "sjlt"}, 180, "more than 15 .* take sketch_size <= 15"),
        ("fedns", {"sketch_size": 16}, 64, ""),
        ("fedndes", {"sketch_size": 16}, 128, ""),
        ("fednewton", {}, 20, ""),
    ],
)
def test_sketches_that_a_small_site_refuses_are_told_before_the_run(method, changes, rows, words):
    found = caution_of_size(algorithm_of(run_of(method, **changes)), rows)
    assert re.search(words, found) if words else found == ""
