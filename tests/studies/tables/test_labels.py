"""Labels to -1 and +1, and telling classes from quantities."""

import numpy as np
import pytest

from fedns.core.errors import DataError
from fedns.studies.tables.labels import as_binary, encode_targets, infer_task


@pytest.mark.parametrize(
    "labels", [[0, 1, 1], [-1, 1, 1], [1, 2, 2], [2.5, 7.5, 7.5], ["no", "yes", "yes"], [False, True, True]]
)
def test_the_larger_of_two_labels_is_positive(labels):
    encoded = as_binary(labels)
    assert encoded.dtype == np.float64
    assert encoded.tolist() == [-1, 1, 1]


@pytest.mark.parametrize("positive", [3, 3.0, "3"])
def test_one_against_the_rest(positive):
    assert as_binary(np.array([1, 3, 7, 3], dtype=np.uint8), positive).tolist() == [-1, 1, -1, 1]


def test_positive_may_be_the_smaller_label_or_text():
    assert as_binary([0, 1], positive=0).tolist() == [1, -1]
    assert as_binary(["ill", "well", "ill"], positive="ill").tolist() == [1, -1, 1]


def test_a_site_with_one_class_needs_positive():
    with pytest.raises(DataError, match=r"two labels are needed, but the targets hold 1 label \(1\).*positive="):
        as_binary([1, 1])
    assert as_binary([1, 1], positive=1).tolist() == [1, 1]
    assert as_binary([0, 0], positive=1).tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("labels", "positive", "problem"),
    [
        (range(8), None, r"hold 8 labels \(0, 1, 2, 3, 4, \.\.\.\): choose .* positive=\.\.\. \(--positive on"),
        (["a", "b", "c"], None, r"hold 3 labels \('a', 'b', 'c'\)"),
        ([0, 1], 2, r"positive=2 is not among the labels: the targets hold 2 labels \(0, 1\)"),
        ([0, 1], "yes", "positive=yes is not a number"),
        ([0, 1, np.nan], None, "targets hold 1 missing or infinite values: drop those rows"),
    ],
)
def test_labels_that_are_not_binary(labels, positive, problem):
    with pytest.raises(DataError, match=problem):
        as_binary(list(labels), positive)


@pytest.mark.parametrize(
    ("targets", "task"),
    [
        ([0, 1, 0], "binary"),
        ([1, 1], "binary"),
        ([3.0, 1.0, 2.0], "multiclass"),
        (range(20), "multiclass"),
        (range(21), "regression"),
        ([0.5, 1.5, 2.5], "regression"),
        ([0, 1, np.nan], "binary"),
        (["a", "b"], "binary"),
        (["a", "b", "c"], "multiclass"),
    ],
)
def test_the_task_is_judged_by_the_values(targets, task):
    assert infer_task(list(targets)) == task


def test_task_overrules_the_guess():
    assert encode_targets([0, 1])[0].tolist() == [-1, 1]
    targets, task = encode_targets([0, 1], task="regression")
    assert (targets.tolist(), task) == ([0, 1], "regression")
    assert encode_targets([0, 1, 2])[1] == "multiclass"
    assert encode_targets([0, 1, 2], positive=1)[1] == "binary"


def test_settings_that_contradict_each_other():
    with pytest.raises(DataError, match="unknown task 'ranking': use binary, regression, multiclass"):
        encode_targets([0, 1], task="ranking")
    with pytest.raises(DataError, match="positive=1 makes two classes: leave it out for task=regression"):
        encode_targets([0, 1], task="regression", positive=1)
    with pytest.raises(DataError, match=r"hold 3 labels \('a', 'b', 'c'\)"):
        encode_targets(["a", "b", "c"])
