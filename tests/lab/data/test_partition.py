"""Splits: every row lands exactly once, with its target, and each name does what it says."""

import numpy as np
import pytest
import scipy.sparse

from fedns.core.errors import DataError
from fedns.core.shards import Shards
from fedns.lab.data.partition import _fill_empty, split, split_dataset
from fedns.studies.tables.dataset import Dataset

ALL = ["contiguous", "iid", "sorted", "dirichlet:0.05", "dirichlet:100", "quantity:0.3", "group"]
ROWS = 200


@pytest.fixture(params=["dense", "sparse"])
def data(request):
    """Rows that can be told apart: the first column is the row's number plus one, the rest follows from it."""
    number = np.arange(ROWS, dtype=np.float64)
    features = np.column_stack([number + 1, np.zeros((ROWS, 6)), number**2])  # few enough nonzeros to stay sparse
    return {
        "features": scipy.sparse.csr_matrix(features) if request.param == "sparse" else features,
        "targets": np.where(number * 7919 % 10 < 3, 1.0, -1.0),
        "groups": np.array(["c", "a", "b", "a", "c"])[(number * 31 % 5).astype(int)],
        "sample_weights": 1 + number % 7,
    }


def dense(shards: Shards):
    rows = shards.rows
    if hasattr(rows, "values"):
        return rows.values
    return scipy.sparse.csr_matrix((rows.data, rows.indices, rows.indptr), shape=rows.shape).toarray()


def numbers(shards: Shards):
    """Which original row stands at each place."""
    return (dense(shards)[:, 0] - 1).astype(int)


def clients_for(how):
    return None if how == "group" else 9


@pytest.mark.parametrize("how", ALL)
def test_every_row_lands_once_with_all_that_belongs_to_it(data, how):
    shards = split(clients=clients_for(how), how=how, seed=3, **data)
    order = numbers(shards)
    assert sorted(order) == list(range(ROWS))
    np.testing.assert_array_equal(dense(shards)[:, -1], order.astype(float) ** 2)
    np.testing.assert_array_equal(shards.targets, data["targets"][order])
    np.testing.assert_array_equal(shards.sample_weights, data["sample_weights"][order])
    assert shards.sizes.min() >= 1
    assert shards.num_clients == (3 if how == "group" else 9)


@pytest.mark.parametrize("how", ALL)
def test_a_seed_decides_and_only_where_something_is_drawn(data, how):
    first, again, other = (split(clients=clients_for(how), how=how, seed=seed, **data) for seed in (1, 1, 2))
    np.testing.assert_array_equal(numbers(first), numbers(again))
    np.testing.assert_array_equal(first.sizes, again.sizes)
    drawn = how not in ("contiguous", "sorted", "group")
    assert np.array_equal(numbers(first), numbers(other)) == (not drawn)


@pytest.mark.parametrize("how", ["contiguous", "iid", "sorted"])
def test_equal_parts_differ_by_at_most_one(data, how):
    sizes = split(clients=9, how=how, **data).sizes
    assert sizes.max() - sizes.min() == 1
    assert split(clients=ROWS, how=how, **data).sizes.tolist() == [1] * ROWS


def test_contiguous_keeps_the_order_and_copies_nothing(data):
    shards = split(clients=7, how="contiguous", **data)
    np.testing.assert_array_equal(numbers(shards), np.arange(ROWS))
    mine = data["features"].data if scipy.sparse.issparse(data["features"]) else data["features"]
    theirs = shards.rows.data if scipy.sparse.issparse(data["features"]) else shards.rows.values
    assert np.shares_memory(mine, theirs)


def test_groups_that_are_in_order_are_not_copied():
    features = np.random.default_rng(0).normal(size=(6, 2))
    shards = split(features, np.ones(6), None, "group", groups=[0, 0, 1, 1, 1, 2])
    assert np.shares_memory(features, shards.rows.values)


def test_sorted_is_stable(data):
    shards = split(clients=5, how="sorted", **data)
    assert (np.diff(shards.targets) >= 0).all()
    for label in (-1, 1):
        assert (np.diff(numbers(shards)[shards.targets == label]) > 0).all()


def test_group_makes_one_named_client_per_label(data):
    shards = split(clients=3, how="group", **data)
    assert shards.names == ("a", "b", "c")
    for client, label in enumerate("abc"):
        owned = numbers(shards)[shards.starts[client] : shards.stops[client]]
        np.testing.assert_array_equal(owned, np.flatnonzero(data["groups"] == label))
    assert split(clients=None, how="group", group_names=("Aarau", "Bern", "Chur"), **data).names[0] == "Aarau"


def positive_shares(how, targets, **options):
    shards = split(np.zeros((targets.size, 1)), targets, 10, how, 5, **options)
    return np.array([shards.targets[a:b].mean() for a, b in zip(shards.starts, shards.stops, strict=True)])


def test_dirichlet_skews_labels_the_more_the_smaller_alpha():
    targets = np.tile([-1.0, 1.0], 2000)
    assert np.abs(positive_shares("dirichlet:0.1", targets)).mean() > 0.6
    assert np.abs(positive_shares("dirichlet:1000", targets)).mean() < 0.1


def test_dirichlet_skews_a_regression_target_by_its_quantiles():
    targets = np.random.default_rng(0).normal(size=4000)
    assert positive_shares("dirichlet:0.1", targets).std() > 0.3
    assert positive_shares("dirichlet:1000", targets).std() < 0.1
    # Ten whole numbers are ten classes or, said to be a quantity, ten bins: the same skew either way, while
    # a constant target is one class, which leaves only the sizes to differ.
    scores = np.repeat(np.arange(10.0), 100)
    by_class, by_bin = (positive_shares("dirichlet:0.1", scores, task=task) for task in (None, "regression"))
    np.testing.assert_array_equal(by_class, by_bin)
    assert positive_shares("dirichlet:0.1", np.full(50, 3.0), task="regression").tolist() == [3.0] * 10


@pytest.mark.parametrize("kind", ["quantity", "dirichlet"])
@pytest.mark.parametrize(("alpha", "standard_error"), [(0.2, 0.0078), (2.0, 0.00102)])
def test_shares_have_the_second_moment_of_a_dirichlet_draw(kind, alpha, standard_error):
    """E[sum p^2] = (alpha + 1) / (m alpha + 1); with one class, the sizes of either split are such shares.

    The standard errors are those of 400 draws; five of them are allowed, for a false alarm in a million.
    """
    features, targets = np.zeros((1000, 1)), np.ones(1000)
    sizes = [split(features, targets, 10, f"{kind}:{alpha}", seed).sizes for seed in range(400)]
    observed = np.mean([((size / 1000) ** 2).sum() for size in sizes])
    assert observed == pytest.approx((alpha + 1) / (10 * alpha + 1), abs=5 * standard_error)


def test_a_huge_alpha_makes_equal_sizes():
    sizes = split(np.zeros((5000, 1)), np.ones(5000), 10, "quantity:1e20", 1).sizes
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("how", ["dirichlet:1e-300", "quantity:1e-300", "dirichlet:0.01", "quantity:0.01"])
def test_no_client_is_left_empty(data, how):
    assert split(clients=150, how=how, **data).sizes.min() == 1
    assert split(clients=ROWS, how=how, **data).sizes.tolist() == [1] * ROWS


def test_empty_clients_take_from_the_largest():
    assert _fill_empty(np.array([0, 5, 4, 0, 4, 0])).tolist() == [1, 3, 3, 1, 4, 1]


def test_a_data_set_brings_its_groups_weights_and_names():
    dataset = Dataset(
        np.arange(8.0).reshape(4, 2),
        np.array([1.0, -1.0, 1.0, -1.0]),
        name="tiny",
        task="binary",
        columns=("a", "b"),
        groups=np.array([1, 0, 1, 0]),
        group_names=("north", "south"),
        sample_weights=np.array([1.0, 2.0, 3.0, 4.0]),
    )
    shards = split_dataset(dataset, None, "group")
    assert shards.names == ("north", "south")
    assert shards.columns == ("a", "b")
    assert shards.sample_weights.tolist() == [2, 4, 1, 3]
    assert split_dataset(dataset, 2).names is None


@pytest.mark.parametrize(
    ("clients", "how", "problem"),
    [
        (1000, "iid", "there are 200 rows for 1000 clients: use at most 200 clients"),
        (0, "iid", "number of clients must be at least 1, got 0"),
        (None, "iid", "number of clients must be at least 1, got None"),
        (5, "random", "unknown split 'random': use iid, contiguous, sorted, dirichlet:ALPHA, quantity:ALPHA, group"),
        (5, "iid:3", "unknown split 'iid:3'"),
        (5, "dirichlet", "split 'dirichlet' needs a number above 0 behind the colon, for example dirichlet:0.5"),
        (5, "dirichlet:", "needs a number above 0"),
        (5, "dirichlet:-1", "needs a number above 0"),
        (5, "dirichlet:inf", "needs a number above 0"),
        (5, "quantity:x", "split 'quantity:x' needs a number above 0 .* quantity:0.5"),
        (5, "dirichlet:ALPHA", "needs a number above 0"),
        (5, "group", "there are 3 natural sites, not 5: leave out the number of clients"),
    ],
)
def test_splits_that_do_not_work(data, clients, how, problem):
    with pytest.raises(DataError, match=problem):
        split(clients=clients, how=how, **data)


def test_groups_that_do_not_fit():
    features, targets = np.zeros((3, 1)), np.zeros(3)
    with pytest.raises(DataError, match=r"no natural sites: name the column that holds them \(group="):
        split(features, targets, None, "group")
    with pytest.raises(DataError, match=r"groups have shape \(2,\), but there are 3 rows"):
        split(features, targets, None, "group", groups=[0, 1])
    with pytest.raises(DataError, match="groups hold 1 missing labels"):
        split(features, targets, None, "group", groups=[0, 1, np.nan])
    with pytest.raises(DataError, match="1 group names were given for 2 groups"):
        split(features, targets, None, "group", groups=[0, 1, 1], group_names=("a",))
    with pytest.raises(DataError, match=r"targets have shape \(2,\), but there are 3 rows"):
        split(features, targets[:2], 1)
