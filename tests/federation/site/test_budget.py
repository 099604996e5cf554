"""The budget on disk: what a crash, a second process and the owner do to it."""

import os
import stat
import threading

import numpy as np
import pytest
from tests.processes import PATIENCE_SECONDS

from fedns.core.shards import Shards
from fedns.federation.site import budget as budgets
from fedns.federation.site.budget import BUDGET_FOLDER, Amounts, Budget, Line, fingerprint, reset_budgets

AHEAD = Amounts(16, 1000, 0)


def line(answer="a", points=("p",), numbers=5, sketched=0, round=1):
    return Line(list(points), answer, numbers, sketched, "run", round, 1000.0)


def test_what_one_process_spends_another_knows(tmp_path):
    one, other = Budget(tmp_path, "x"), Budget(tmp_path, "x")
    with one.held():
        one.spend(line())
    with other.held() as spent:
        assert (spent.numbers, spent.points, spent.asked) == (5, {"p"}, {("run", 1): 1})
        other.spend(line("b", ["q"], 7, 2))
    assert (one.spent().numbers, one.spent().sketched, one.spent().points) == (12, 2, {"p", "q"})
    assert Budget(tmp_path, "y").spent().numbers == 0


def test_the_same_answer_again_is_counted_once(tmp_path):
    budget = Budget(tmp_path, "x")
    with budget.held():
        budget.spend(line())
        budget.spend(line())
    assert budget.spent().numbers == 5
    assert budget.spent().asked == {("run", 1): 2}


def test_a_line_that_a_crash_tore_takes_nothing_with_it(tmp_path):
    budget = Budget(tmp_path, "x")
    with budget.held():
        budget.spend(line())
    path = tmp_path / BUDGET_FOLDER / "x.jsonl"
    path.write_bytes(path.read_bytes() + b'{"points": ["q"], "ans')
    with budget.held() as spent:
        assert spent.numbers == 5
        budget.spend(line("b"))
    assert budget.spent().numbers == Budget(tmp_path, "x").spent().numbers == 10


def test_the_owner_begins_anew_and_a_running_site_notices(tmp_path):
    budget = Budget(tmp_path, "x")
    with budget.held():
        budget.spend(line())
    assert budget.spent().numbers == 5
    assert reset_budgets(tmp_path) == 1
    assert budget.spent().numbers == 0
    with budget.held():
        budget.spend(line("b", numbers=900_000))
    assert budget.spent().numbers == 900_000
    assert len(list((tmp_path / BUDGET_FOLDER).glob("*.reset"))) == 1  # kept aside


def test_every_number_of_the_rows_is_in_their_fingerprint():
    x, y = np.zeros((5, 2)), np.ones(5)
    changed = x.copy()
    changed[4, 1] = 1e-300
    marks = {
        fingerprint(Shards.from_arrays(*rows, [5], sample_weights=weights))
        for rows, weights in [((x, y), None), ((changed, y), None), ((x, -y), None), ((x, y), np.ones(5))]
    }
    assert len(marks) == 4
    assert fingerprint(Shards.from_arrays(x.copy(), y.copy(), [5])) in marks


def test_a_fingerprint_is_that_of_the_numbers_not_of_how_they_are_stored():
    shards = Shards.from_arrays(np.arange(12.0).reshape(4, 3), np.ones(4), [4])
    assert shards.narrowed.rows.flat.dtype == np.uint8
    assert fingerprint(shards.narrowed) == fingerprint(shards)


class Disk:
    """A disk that keeps, over a power cut, what was in the file when it was last asked to, and counts how often it was."""

    def __init__(self, path, monkeypatch):
        self.path, self.kept, self.asked, self.works = path, b"", 0, threading.Event()
        self.works.set()
        monkeypatch.setattr(budgets, "_boot", lambda: self.boot)
        monkeypatch.setattr(budgets.os, "fsync", self.fsync)
        self.boot = "first"

    def fsync(self, file):
        self.works.wait(10)
        if stat.S_ISREG(os.fstat(file).st_mode):  # and not the folder with the file's name
            self.asked, self.kept = self.asked + 1, self.path.read_bytes()

    def cut_power(self):
        self.path.write_bytes(self.kept)
        self.boot = "second"


@pytest.fixture
def disk(tmp_path, monkeypatch):
    return Disk(tmp_path / BUDGET_FOLDER / "x.jsonl", monkeypatch)


def ask(budget, number, ahead=AHEAD):
    """One request about a point of its own; it is settled when its answer may leave."""
    with budget.held():
        budget.spend(line(f"a{number}", [f"p{number}"], 54), ahead)
    budget.settle()


def test_whenever_the_power_fails_at_least_what_left_is_known_to_be_spent(tmp_path, disk):
    budget, aside = Budget(tmp_path, "x"), tmp_path / "aside" / BUDGET_FOLDER
    for number in range(100):
        ask(budget, number)
        aside.mkdir(exist_ok=True, parents=True)
        (aside / "x.jsonl").write_bytes(disk.kept)
        disk.boot = "second"
        found = Budget(tmp_path / "aside", "x").spent().amounts
        disk.boot = "first"
        assert found.points in range(number + 1, number + 1 + 2 * AHEAD.points)
        assert 54 * (number + 1) <= found.numbers <= 54 * (number + 1) + 2 * AHEAD.numbers
    assert disk.asked <= 100 / (AHEAD.points / 2)


def test_what_a_power_cut_took_stays_spent_and_later_requests_are_added_to_it(tmp_path, disk):
    ask(Budget(tmp_path, "x"), 0)
    disk.cut_power()
    again = Budget(tmp_path, "x")
    assert again.spent().amounts == Amounts(17, 1054, 0)
    ask(again, 1)
    assert again.spent().amounts == Budget(tmp_path, "x").spent().amounts == Amounts(18, 1108, 0)


def test_a_process_that_dies_loses_nothing_of_the_budget(tmp_path, disk):
    for number in range(5):
        ask(Budget(tmp_path, "x"), number)
    assert Budget(tmp_path, "x").spent().amounts == Amounts(5, 270, 0)


def test_an_answer_waits_for_the_disk_only_where_nothing_is_reserved_for_it(tmp_path, disk):
    budget = Budget(tmp_path, "x")
    ask(budget, 0)
    disk.works.clear()
    for number in range(1, 17):
        ask(budget, number)  # the ninth reserves more, and does not wait for it
    waiting = threading.Thread(target=ask, args=(budget, 17))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    disk.works.set()
    waiting.join(PATIENCE_SECONDS)
    assert not waiting.is_alive()
    assert disk.asked >= 2


def test_a_disk_that_fails_stops_the_answer(tmp_path, monkeypatch):
    def broken(file):
        raise OSError("no more disk")

    monkeypatch.setattr(budgets.os, "fsync", broken)
    with pytest.raises(OSError, match="no more disk"):
        ask(Budget(tmp_path, "x"), 0)


def test_a_machine_that_does_not_tell_when_it_was_down_reserves_nothing_ahead(tmp_path, disk):
    disk.boot = ""
    budget = Budget(tmp_path, "x")
    for number in range(3):
        ask(budget, number)
    assert disk.asked == 3
    disk.path.write_bytes(disk.kept)
    assert Budget(tmp_path, "x").spent().amounts == Amounts(3, 162, 0)


def test_a_table_of_scores_is_on_the_disk_by_itself(tmp_path, disk):
    budget = Budget(tmp_path, "x")
    ask(budget, 0)
    with budget.held():
        budget.spend(Line([], "t", 4, 0, "run", 1, 1000.0, [[3, 4]]), AHEAD)
    budget.settle()
    disk.cut_power()
    assert Budget(tmp_path, "x").spent().tables == [[3, 4]]


@pytest.mark.parametrize(("refused", "seconds"), [(False, 60.0), (True, 3600.0)])
def test_times_are_kept_for_as_long_as_they_count(refused, seconds):
    spent = budgets.Spent()
    for moment in (0.0, seconds / 2, seconds, seconds + 1.0):
        spent.add(Line([], "", 0, 0, "run", 1, moment, refused=refused))
    assert (spent.refusals if refused else spent.times) == [seconds / 2, seconds, seconds + 1.0]
    assert (spent.times if refused else spent.refusals) == []
    since = spent.refused_since if refused else spent.asked_since
    assert [since(moment) for moment in (0.0, seconds / 2, seconds + 1.0)] == [3, 2, 0]


def test_sketches_that_a_power_cut_may_have_taken_stay_spent(tmp_path, disk):
    budget = Budget(tmp_path, "x")
    with budget.held():
        budget.spend(line("a", ["p"], 5, 7), Amounts(16, 1000, 500))
    budget.settle()
    disk.cut_power()
    assert Budget(tmp_path, "x").spent().amounts == Amounts(17, 1005, 507)
