"""What is left of a budget: one count for everybody who looks, warnings before it ends, and no run that cannot begin."""

import json
import logging
from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.attacker import Attacker, Refused
from tests.attacks.study_site import StudySite
from tests.federation.in_process import OPEN_HANDED, Federation, one_client, run_of

from fedns.cli.app import main
from fedns.cli.serving import table_of
from fedns.core.messages.encoding import WIRE_PRECISIONS, Envelope, encode
from fedns.core.registry import Registry
from fedns.core.shards import Shards
from fedns.federation import config, doctor
from fedns.federation.permissions import Permissions
from fedns.federation.protocol.packets import ANSWER, ASK, OPEN, Packet
from fedns.federation.protocol.transport import Engine
from fedns.federation.site.budget import Budget, Spent, fingerprint
from fedns.federation.site.explain import Need, level_of, meaning_for_studies, spending, spending_sentence
from fedns.methods.curvature import Iterate
from fedns.runs.methods import parse_method

ROWS, COLUMNS = 60, 3
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(ROWS, COLUMNS))
Y = np.where(X[:, 0] + RANDOM.normal(size=ROWS) > 0, 1.0, -1.0)
SHARDS = Shards.from_arrays(X, Y, [ROWS])


def spent_of(points=0, numbers=0, sketched=0, tables=0):
    return Spent({str(point) for point in range(points)}, set(), numbers, sketched, tables=[[one] for one in range(tables)])


@pytest.mark.parametrize(
    ("share", "level"), [(0.49, 0.0), (0.5, 0.5), (0.79, 0.5), (0.8, 0.8), (0.94, 0.8), (0.95, 0.95), (2, 0.95)]
)
@pytest.mark.parametrize("kind", ["points", "numbers", "sketched", "tables"])
def test_the_kind_that_is_used_most_gives_the_mark(kind, share, level):
    own = Permissions(points=100, largest_released_fraction=1.0, largest_sketched_fraction=1.0, score_tables=100)
    assert level_of(spending(own, spent_of(**{kind: int(100 * share)}), 100)) == level


def test_a_limit_of_nothing_is_used_up_by_anything():
    own = Permissions(points=100, score_tables=0)
    assert level_of(spending(own, spent_of(), 100)) == 0.0
    assert level_of(spending(own, spent_of(tables=1), 100)) == 0.95


def test_each_figure_stands_beside_its_own_limit():
    own = Permissions(points=40, largest_released_fraction=3.0, largest_sketched_fraction=6.0, score_tables=7)
    assert spending_sentence(spending(own, spent_of(1, 2, 3, 4), 100)) == (
        "asked about at 1 of 40 permitted points; sent 2 of 300 permitted numbers, 3 of 600 in sketches and 4 of 7 tables "
        "of scores"
    )


@pytest.mark.parametrize(
    ("method", "once", "each_round"),
    [("gd", 8 + 16, 8 + 8), ("fednewton", 7 + 28 + 16, 7 + 28 + 8), ("auto", 3 + 16, 3 + 8)],
)
def test_what_a_run_takes_at_least(method, once, each_round):
    """Of 7 coefficients: a gradient with or without the loss, a Hessian; an evaluation has 8 numbers."""
    algorithm = parse_method(method).algorithm
    asked = {"local_gradient": 8, "curvature": 35, "change": 3, "root": 9, "column_scales": 0}
    need = Need.of(asked, algorithm, 8, 0)
    assert need == Need(once, each_round)
    assert Need.of(asked, algorithm, 8, 5).once == once + 5


@pytest.mark.parametrize(
    ("points", "numbers", "rounds"),
    [(10, 29, 0), (10, 30, 1), (10, 49, 1), (10, 50, 2), (1, 500, 1), (0, 500, 0), (3, 500, 3)],
)
def test_for_how_many_rounds_a_budget_is_enough(points, numbers, rounds):
    own = Permissions(points=100, largest_released_fraction=5.0)
    found = spending(own, spent_of(100 - points, 500 - numbers), 100)
    assert Need(30, 20).rounds_within(found) == rounds


def budget_for(rounds, method_numbers):
    """The fraction of the table's numbers that so many rounds of a method take, with the evaluation before the first."""
    evaluation = 2 + COLUMNS
    return (rounds * (method_numbers + evaluation) + evaluation) / (ROWS * COLUMNS)


def test_a_run_that_the_budget_does_not_last_one_round_of_is_refused_when_it_is_opened(tmp_path):
    """A gradient and a Hessian of four coefficients are 14 numbers; a look at the objective is five."""
    own = replace(Permissions(), points=5, largest_released_fraction=budget_for(1, 14))
    Attacker(SHARDS, tmp_path / "enough", own, "fednewton")
    less = replace(own, largest_released_fraction=(budget_for(1, 14) * ROWS * COLUMNS - 1) / (ROWS * COLUMNS))
    with pytest.raises(Refused, match=r"^R5: what is left of its budget is not enough for a single round of fednewton$"):
        Attacker(SHARDS, tmp_path / "less", less, "fednewton")


def test_the_same_run_again_is_opened_with_nothing_left_since_its_answers_cost_nothing(tmp_path):
    attacker = Attacker(SHARDS, tmp_path, replace(Permissions(), largest_released_fraction=budget_for(1, 4)), "gd")
    attacker.ask("local_gradient", Iterate(np.zeros(4)))
    attacker.begin()
    attacker.ask("local_gradient", Iterate(np.zeros(4)))
    with pytest.raises(Refused, match="not enough for a single round of gd"):
        attacker.begin(seed=7)


def facts_of(attacker):
    return json.loads(attacker._send(OPEN, attacker.spec.agreed()))


@pytest.mark.parametrize(("rounds", "enough"), [(4, True), (5, False)])
def test_a_coordinator_is_told_when_the_rounds_of_a_run_may_take_more_than_is_left(rounds, enough, tmp_path):
    own = replace(Permissions(), largest_released_fraction=budget_for(4, 14))
    facts = facts_of(Attacker(SHARDS, tmp_path, own, "fednewton", rounds=rounds))
    assert facts["budget_is_enough"] is enough and facts["budget_spent"] == 0.0


def test_owner_and_coordinator_are_warned_as_marks_are_passed_and_told_no_more(tmp_path, caplog):
    caplog.set_level(logging.WARNING, logger="fedns.site")
    attacker, marks, warned = Attacker(SHARDS, tmp_path, replace(Permissions(), points=20), "gd"), [], []
    for number in range(20):
        attacker.ask("local_gradient", Iterate(np.full(4, 0.01 * number)), 1)
        marks.append(facts_of(attacker)["budget_spent"])
        warned.append(sum("of what may leave about these rows has left" in line for line in caplog.messages))
    assert marks == [0.0] * 9 + [0.5] * 6 + [0.8] * 3 + [0.95] * 2
    assert warned == [0] * 9 + [1] * 6 + [2] * 3 + [3] * 2
    said = [line for line in caplog.messages if "of what may leave about these rows has left: " in line]
    assert [line.partition(" of what")[0] for line in said] == ["R5: 50 %", "R5: 80 %", "R5: 95 %"]
    assert "10 of 20 permitted points" in said[0] and "19 of 20 permitted points" in said[2]
    assert set(facts_of(attacker)) == {"site", "blanked_columns", "runs", "budget_spent", "budget_is_enough"}


def test_the_coordinator_says_so_in_its_log(tmp_path, caplog):
    both = Shards.from_arrays(X, Y, [30, 30])
    first = Federation(both, tmp_path, run_of("gd", 2, rounds=3))
    first.start()
    assert not [event for event in first.events if event["event"] == "budget"]
    (used,) = {len(Budget(tmp_path / site, fingerprint(one_client(both, number))).spent().points)
               for number, site in enumerate(first.spec.sites)}  # fmt: skip
    own = replace(OPEN_HANDED, points=2 * used - 1)
    again = Federation(both, tmp_path, run_of("gd", 2, rounds=used, seed=9), permissions=own)
    again.folder = tmp_path / "again"
    again.folder.mkdir()
    again.start(gradient_tol=1e9)
    said = [event["reason"] for event in again.events if event["event"] == "budget"]
    end = "what is left may end before the rounds of this run do"
    assert sorted(said) == [
        f"site 'site-{number}': more than 50 % of what may leave it has left; {end}" for number in range(2)
    ]
    assert said[0] in caplog.text


class Postman:
    """An engine that hands one run's first requests to the service, in this process."""

    def __init__(self, requests):
        self.requests, self.answers = requests, []

    def serve(self, credentials, service, path):
        answer = service(path)
        self.answers = [Packet.decode(answer(request)) for request in self.requests]


def requests_of_a_run():
    spec, run = replace(run_of("gd", 1), sites=("north",)), bytes(range(16))
    ask = encode(Iterate(np.zeros(4)), Envelope(1, handler="local_gradient"), WIRE_PRECISIONS["float64"])
    return [Packet(kind, run, 0, number, 0, 0, body).encode() for number, (kind, body) in
            enumerate([(OPEN, spec.agreed()), (ASK, ask)], start=1)]  # fmt: skip


FILES = {
    "csv": ("rows.csv", 'target = "y"'),
    "npz": ("rows.npz", ""),
}


@pytest.mark.parametrize("kind", FILES)
def test_the_command_says_what_the_limits_mean_and_the_doctor_counts_as_it_does(kind, tmp_path, monkeypatch, caplog):
    """Through `fedns site`: what it says first, and what is left after a run, in its own words and in the doctor's."""
    postman = Postman(requests_of_a_run())
    engine = Engine("postman", "numpy", None, postman.serve, None)
    monkeypatch.setattr(config, "TRANSPORTS", Registry("engine", "fedns.none", Engine, (engine,)))
    file, target = FILES[kind]
    np.savez(tmp_path / "rows.npz", X=X, y=Y)
    np.savetxt(tmp_path / "rows.csv", np.c_[X, Y], delimiter=",", header="a,b,c,y", comments="")
    site = tmp_path / "site.toml"
    site.write_text(f'name = "north"\nengine = "postman"\n[data]\ndataset = "{file}"\n{target}\n[permit]\nrounds = 7\n')
    caplog.set_level(logging.INFO, logger="fedns.site")
    monkeypatch.setattr("fedns.cli.federation.log_to_console", lambda: None)

    def said():
        caplog.clear()
        with pytest.raises(SystemExit) as ended:
            main(["site", str(site)])
        assert not ended.value.code
        return caplog.messages

    first = said()
    assert [answer.kind for answer in postman.answers] == [ANSWER, ANSWER]
    assert "60 rows, 4 coefficients with the intercept" in first and "changed by you: rounds = 7" in first
    budget = (
        "asked about at {} of 1000 permitted points; sent {} of 180 permitted numbers, 0 of 900 in sketches and 0 of 20 "
        "tables of scores"
    )
    assert budget.format(0, 0) in first
    assert budget.format(1, 4) in said()
    findings = {finding.what for finding in doctor.examine(site, table_of)}
    assert f"limits: {budget.format(1, 4)}" in findings


def test_a_table_that_studies_choose_columns_of_is_counted_alike(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="fedns.site")
    site = StudySite(tmp_path / "a", Permissions(score_tables=3))
    assert "60 rows of 7 columns, which a study chooses from" in caplog.messages
    site.gradient_at_zero(site.study("dose", family="gaussian").replace("age + dose", "age"), 3)
    caplog.clear()
    site.restart()
    (left,) = (line for line in caplog.messages if line.startswith("asked about"))
    assert left.startswith(
        "asked about at 1 of 1000 permitted points; sent 9 numbers and 0 in sketches, of 1 and 5 times as"
    )
    assert left.endswith("and 0 of 3 tables of scores")


@pytest.mark.parametrize(
    ("smallest", "says"),
    [
        (60, "gradients of up to 50 coefficients are permitted, full Hessians of up to 20"),
        (61, "fewer rows than your limit of 61: this site will refuse"),
    ],
)
def test_both_sides_of_the_rows_that_taking_part_needs(smallest, says, tmp_path):
    assert meaning_for_studies(Permissions(smallest_rows=smallest), 60, 4, Budget(tmp_path, "x"))[1] == says
