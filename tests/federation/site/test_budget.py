"""The budget on disk: what a crash, a second process and the owner do to it."""

import numpy as np

from fedns.core.shards import Shards
from fedns.federation.site.budget import BUDGET_FOLDER, Budget, Line, fingerprint, reset_budgets


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
