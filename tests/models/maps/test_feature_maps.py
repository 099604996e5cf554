"""Feature maps against scikit-learn's kernels and maps; what the sites agree on against the pooled rows."""

import dataclasses
import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from scipy.spatial.distance import pdist
from sklearn import kernel_approximation, preprocessing
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from tests.conftest import dense_features, make_shards

import fedns
from fedns.core.cohort import Session
from fedns.core.errors import ConfigError, DataError
from fedns.core.shards import Shards
from fedns.methods.exchanges import landmarks as landmark_exchange
from fedns.methods.exchanges.landmarks import federated_landmarks, federated_width
from fedns.models.losses import Squared
from fedns.models.maps import feature_map as feature_map_module
from fedns.models.maps.feature_map import FeatureMap, Identity, Polynomial
from fedns.models.maps.kernel_maps import Nystroem, OrthogonalRandom, RandomFourier
from fedns.models.penalties import Ridge
from fedns.models.problem import Problem
from fedns.models.reference import pooled_optimum
from fedns.numerics import parallel
from fedns.numerics.rows import DenseRows
from fedns.simulation.simulator import SimulatedCohort

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 5))
LANDMARKS = RANDOM.normal(size=(9, 13))
MAPS = [
    Identity(),
    RandomFourier(20, width=2.0),
    RandomFourier(20, width=2.0, kernel="laplace"),
    OrthogonalRandom(34, width=2.0),
    Nystroem(LANDMARKS, width=3.0),
    Nystroem(LANDMARKS, width=3.0, kernel="laplace"),
    Polynomial(2),
    Polynomial(3, interaction_only=True, bias=True),
]
TRUE_KERNELS = {
    "gaussian": lambda x, y, width: rbf_kernel(x, y, gamma=1 / (2 * width**2)),
    "laplace": lambda x, y, width: laplacian_kernel(x, y, gamma=1 / width),
}
each_map = pytest.mark.parametrize("feature_map", MAPS, ids=lambda m: f"{type(m).__name__} {getattr(m, 'kernel', '')}")


def cohort_of(shards: Shards) -> SimulatedCohort:
    return SimulatedCohort(shards, Session(Problem(), seed=0))


def split_rows(features: np.ndarray, sizes: list[int]) -> Shards:
    return Shards.from_arrays(features, np.ones(len(features)), sizes)


# Every map


@each_map
def test_a_map_is_a_value_and_keeps_the_clients(feature_map: FeatureMap):
    shards = make_shards(weighted=True)
    mapped = feature_map.apply(shards)
    assert mapped.rows.shape == (300, feature_map.num_features(13))
    assert isinstance(mapped.rows, DenseRows) and mapped.rows.flat.dtype == np.float64
    for name in ("targets", "starts", "stops", "sample_weights"):
        assert getattr(mapped, name) is getattr(shards, name)
    twin = dataclasses.replace(feature_map)
    assert twin == feature_map and hash(twin) == hash(feature_map)
    np.testing.assert_array_equal(twin.apply(shards).rows.values, mapped.rows.values)


@each_map
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_compressed_rows_give_what_dense_rows_give(feature_map, dtype):
    shards = make_shards(sparse=True, dtype=dtype)
    expected = feature_map.transform(dense_features(shards))
    np.testing.assert_allclose(dense_features(feature_map.apply(shards)), expected, rtol=1e-12, atol=1e-13)
    sparse = scipy.sparse.csr_matrix(dense_features(shards))
    np.testing.assert_allclose(feature_map.transform(sparse), expected, rtol=1e-12, atol=1e-13)


@each_map
@pytest.mark.parametrize("sparse", [False, True])
def test_a_site_alone_gets_the_bits_it_gets_among_others(feature_map, sparse, monkeypatch):
    monkeypatch.setattr(feature_map_module, "BLOCK_ENTRIES", 700)  # several blocks per client
    shards = make_shards(sparse=sparse)
    with parallel.threads(2):
        together = dense_features(feature_map.apply(shards))
    with parallel.threads(1):
        for j, (a, b) in enumerate(zip(shards.starts, shards.stops, strict=True)):
            site = split_rows(dense_features(shards)[a:b], [b - a])
            if sparse:
                site = Shards.from_arrays(scipy.sparse.csr_matrix(dense_features(site)), site.targets, [b - a])
            selected = dense_features(feature_map.apply(shards.select([j])))
            np.testing.assert_array_equal(selected[a:b], together[a:b])
            if isinstance(site.rows, DenseRows) == isinstance(shards.rows, DenseRows):
                np.testing.assert_array_equal(dense_features(feature_map.apply(site)), together[a:b])
    np.testing.assert_allclose(dense_features(feature_map.apply(shards.pooled())), together, rtol=1e-12, atol=1e-13)


def test_rows_of_absent_clients_are_left_alone():
    shards = make_shards()
    mapped = dense_features(RandomFourier(8).apply(shards.select([1])))
    assert mapped[1:91].any(axis=1).all() and not mapped[:1].any() and not mapped[91:].any()


def test_mapping_needs_little_memory_beyond_the_result():
    shards = split_rows(np.ones((60_000, 20)), [60_000])
    tracemalloc.start()
    with parallel.threads(1):
        mapped = RandomFourier(100).apply(shards)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < mapped.rows.nbytes + 10 * 2**20  # 48 MB of result


# Random features


@pytest.mark.parametrize(
    ("make", "kernel", "settings"),
    [
        (RandomFourier, "gaussian", {}),
        (RandomFourier, "laplace", {"kernel": "laplace"}),
        (OrthogonalRandom, "gaussian", {}),
    ],
)
def test_random_features_approach_the_kernel_like_one_over_root_size(make, kernel, settings):
    expected = TRUE_KERNELS[kernel](X, X, 2.0)
    sizes = [64, 256, 1024, 4096]
    errors = []
    for size in sizes:
        squares = [
            np.mean((phi @ phi.T - expected) ** 2)
            for phi in (make(size, width=2.0, seed=s, **settings).transform(X) for s in range(8))
        ]
        errors.append(np.sqrt(np.mean(squares)))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert -0.56 < slope < -0.44
    # The variance of a pair of rows is (1 + k(2x, 2y) - 2 k(x, y)^2) / size, and k(2x, 2y) <= k(x, y)^2.
    assert errors[-1] < 1.1 / np.sqrt(sizes[-1])


def test_orthogonal_frequencies_have_the_smaller_variance():
    expected = rbf_kernel(X, X, gamma=1 / 8)

    def variance(make):
        squares = [np.mean((phi @ phi.T - expected) ** 2) for phi in (make(40, 2.0, seed=s).transform(X) for s in range(30))]
        return np.mean(squares)

    assert variance(OrthogonalRandom) < 0.8 * variance(RandomFourier)


def test_pairs_have_the_smaller_variance_than_random_phases():
    """The other form of random features, with as many numbers, is the noisier: why pairs were chosen."""
    expected = rbf_kernel(X, X, gamma=1 / 8)
    pairs, phases = [], []
    for seed in range(30):
        phi = RandomFourier(40, 2.0, seed=seed).transform(X)
        omega = RandomFourier(80, 2.0, seed=seed + 100).frequencies(5)
        psi = np.sqrt(2 / 40) * np.cos(X @ omega.T + np.random.default_rng(seed).uniform(0, 2 * np.pi, 40))
        pairs.append(np.mean((phi @ phi.T - expected) ** 2))
        phases.append(np.mean((psi @ psi.T - expected) ** 2))
    assert np.mean(pairs) < np.mean(phases)


def test_frequencies_are_nested_orthogonal_and_of_the_right_scale():
    np.testing.assert_array_equal(RandomFourier(20).frequencies(7)[:5], RandomFourier(10).frequencies(7))
    assert not np.array_equal(RandomFourier(10, seed=1).frequencies(7), RandomFourier(10).frequencies(7))
    omega = OrthogonalRandom(20).frequencies(6)  # 10 frequencies: a block of 6 and one of 4
    for block in (omega[:6], omega[6:]):
        gram = block @ block.T
        np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-12)
    # E |omega|^2 = columns / width^2 for both; 1000 draws of a chi-square with 6 degrees: 4 standard errors are 7 %.
    for make in (RandomFourier, OrthogonalRandom):
        squares = (make(2000, width=0.5).frequencies(6) ** 2).sum(axis=1)
        assert squares.mean() == pytest.approx(24.0, rel=0.07)
    np.testing.assert_allclose((RandomFourier(50).transform(X) ** 2).sum(axis=1), 1.0, rtol=1e-12)


# Nystroem and polynomials


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
@pytest.mark.parametrize("sparse", [False, True])
def test_nystroem_site_by_site_equals_scikit_learn(kernel, sparse):
    shards = make_shards(sparse=sparse)
    x = dense_features(shards)
    name, gamma = ("rbf", 1 / 18) if kernel == "gaussian" else ("laplacian", 1 / 3)
    theirs = kernel_approximation.Nystroem(kernel=name, gamma=gamma, n_components=40, random_state=0).fit(x)
    feature_map = Nystroem(theirs.components_, width=3.0, kernel=kernel)
    mapped = np.zeros((300, 40))
    for j in range(shards.num_clients):
        mapped += dense_features(feature_map.apply(shards.select([j])))
    np.testing.assert_allclose(mapped, theirs.transform(x), rtol=0, atol=1e-10)


def test_nystroem_survives_repeated_landmarks_and_rows_far_from_the_origin():
    twice = np.concatenate([X[:10], X[:10], X[:10] + 1e-9])
    phi = Nystroem(twice, width=2.0).transform(X)
    single = Nystroem(X[:10], width=2.0).transform(X)
    np.testing.assert_allclose(phi @ phi.T, single @ single.T, atol=1e-6)
    far = Nystroem(X[:10] + 1e5, width=2.0).transform(X + 1e5)
    np.testing.assert_allclose(far @ far.T, single @ single.T, atol=1e-8)


def test_nystroem_on_all_rows_is_the_kernel():
    phi = Nystroem(X, width=2.0, kernel="laplace").transform(X)
    np.testing.assert_allclose(phi @ phi.T, laplacian_kernel(X, X, gamma=0.5), atol=1e-10)


def test_a_nystroem_map_cannot_be_changed_through_its_landmarks():
    landmarks = X[:4].copy()
    feature_map = Nystroem(landmarks)
    landmarks[:] = 0
    assert feature_map == Nystroem(X[:4]) != Nystroem(X[:4], width=2.0)
    with pytest.raises(ValueError, match="read-only"):
        feature_map.landmarks[0, 0] = 1.0


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
@pytest.mark.parametrize("interaction_only", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("columns", [1, 3, 5])
def test_polynomial_equals_scikit_learn(degree, interaction_only, bias, columns):
    theirs = preprocessing.PolynomialFeatures(degree, interaction_only=interaction_only, include_bias=bias)
    x = X[:, :columns]
    np.testing.assert_array_equal(Polynomial(degree, interaction_only, bias).transform(x), theirs.fit_transform(x))


# Kernel ridge regression


def kernel_ridge_problem(rows: int = 200) -> tuple[Shards, KernelRidge, np.ndarray]:
    random = np.random.default_rng(7)
    x = random.uniform(-2, 2, size=(rows, 3))
    y = np.sin(x[:, 0]) * x[:, 1] + np.cos(2 * x[:, 2]) + 0.1 * random.normal(size=rows)
    shards = Shards.from_arrays(x, y, [rows // 4] * 4)
    exact = KernelRidge(alpha=rows * 1e-3, kernel="rbf", gamma=0.5).fit(x, y)
    return shards, exact, random.uniform(-2, 2, size=(150, 3))


RIDGE = Problem(Squared(), Ridge(1e-3))


@pytest.mark.slow
def test_ridge_on_all_landmarks_is_kernel_ridge():
    shards, exact, new = kernel_ridge_problem()
    feature_map = Nystroem(dense_features(shards), width=1.0)
    w = pooled_optimum(RIDGE, feature_map.apply(shards)).coefficients
    np.testing.assert_allclose(feature_map.transform(new) @ w, exact.predict(new), atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("make", [RandomFourier, OrthogonalRandom], ids=["fourier", "orthogonal"])
def test_ridge_on_random_features_approaches_kernel_ridge_like_one_over_root_size(make):
    """Fixed seeds; over 12 of them the slope of the log error is -0.5 within 0.1. Ridge is solved in its dual: few rows."""
    shards, exact, new = kernel_ridge_problem()
    x, damping, expected = dense_features(shards), 200 * 1e-3 * np.eye(200), exact.predict(new)
    sizes = [128, 256, 512, 1024]
    errors = []
    for size in sizes:
        squares = []
        for seed in range(12):
            feature_map = make(size, width=1.0, seed=seed)
            z = feature_map.transform(x)
            w = z.T @ np.linalg.solve(z @ z.T + damping, shards.targets)
            squares.append(np.mean((feature_map.transform(new) @ w - expected) ** 2))
        errors.append(np.sqrt(np.mean(squares)))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert -0.6 < slope < -0.4
    assert errors[-1] < 0.05 * expected.std()


def test_kernel_ridge_is_learned_by_the_federation():
    shards, exact, new = kernel_ridge_problem(800)
    cohort = cohort_of(shards)
    feature_map = Nystroem(federated_landmarks(cohort, 60), width=federated_width(cohort))
    history = fedns.simulate(fedns.FedNewton(), RIDGE, feature_map.apply(shards), rounds=3, tol=1e-12)
    assert history.converged
    predictions = feature_map.transform(new) @ history.coefficients
    assert np.corrcoef(predictions, exact.predict(new))[0, 1] > 0.95


# Landmarks and width from the sites


def test_groups_are_means_of_at_least_five_rows(monkeypatch):
    """What leaves a site is checked against its rows: every centre is the mean of its own group, and none is a row."""
    seen = []
    original = landmark_exchange._grouped
    monkeypatch.setattr(landmark_exchange, "_grouped", lambda x, *rest: seen.append((x, original(x, *rest))) or seen[-1][1])
    shards = make_shards(rows=400, columns=4, sizes=(3, 4, 5, 88, 300))
    cohort = cohort_of(shards)
    landmarks = federated_landmarks(cohort, 30)
    assert landmarks.shape == (30, 4)
    assert len(seen) == 3  # sites of 3 and 4 rows send nothing
    for x, (means, sizes) in seen:
        assert sizes.min() >= 5 and sizes.sum() == len(x)
        np.testing.assert_allclose(sizes @ means / sizes.sum(), x.mean(axis=0), atol=1e-12)
        assert not (np.abs(x[:, None] - means).max(axis=2) < 1e-9).any()
    assert min(len(means) for _, (means, _) in seen) == 1  # the site of 5 rows
    entry = cohort.session.meter.ledger[-1]
    assert (entry.direction, entry.kind, entry.fields) == ("uplink", "GroupMeans", ("means", "sizes"))
    assert entry.bytes > 8 * 30 * 4


def test_landmarks_do_not_depend_on_chunks_or_threads():
    shards = make_shards(columns=6)
    results = []
    for chunk, threads in ((1, 1), (2, 2), (5, 2)):
        with parallel.threads(threads):
            cohort = SimulatedCohort(shards, Session(Problem(), seed=0), chunk_clients=chunk)
            results.append(federated_landmarks(cohort, 12, seed=3))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    assert not np.array_equal(results[0], federated_landmarks(cohort, 12, seed=4))


def test_landmarks_are_as_good_as_pooled_rows():
    """The kernel of 1000 rows in clusters, from 30 landmarks: means of groups err less than 30 of the rows."""
    random = np.random.default_rng(5)
    x = random.normal(size=(12, 4))[random.integers(12, size=1000)] * 2 + 0.4 * random.normal(size=(1000, 4))
    cohort = cohort_of(split_rows(x, [100] * 10))
    width = federated_width(cohort)
    expected = rbf_kernel(x, x, gamma=1 / (2 * width**2))

    def error(landmarks):
        phi = Nystroem(landmarks, width).transform(x)
        return np.linalg.norm(phi @ phi.T - expected) / np.linalg.norm(expected)

    rows = np.mean([error(x[random.choice(1000, 30, replace=False)]) for _ in range(5)])
    assert error(federated_landmarks(cohort, 30)) < rows


@pytest.mark.parametrize(("kernel", "metric"), [("gaussian", "euclidean"), ("laplace", "cityblock")])
def test_the_width_is_the_pooled_median_where_sites_are_alike(kernel, metric):
    """Within 5 %: a bin is 4.4 % wide, and 10 x 32640 pairs leave an error well below 1 %."""
    x = np.random.default_rng(2).normal(size=(2000, 6)) * np.arange(1, 7)
    cohort = cohort_of(split_rows(x, [100, 300, 50, 400, 150, 350, 250, 200, 120, 80]))
    assert federated_width(cohort, kernel) == pytest.approx(np.median(pdist(x, metric)), rel=0.05)
    up = cohort.session.meter.ledger[-1]
    assert up.kind == "DistanceHistogram" and up.bytes < 10 * 1500


@pytest.mark.parametrize("name", ["phishing", "a9a", "cod_rna"])
def test_the_width_is_the_pooled_median_on_real_data(real_data, name):
    data = real_data(name)
    shards = fedns.split_dataset(data, 40)
    some = np.random.default_rng(0).choice(data.num_samples, 1500, replace=False)
    rows = data.features[some]
    pooled = np.median(pdist(rows.toarray() if scipy.sparse.issparse(rows) else rows))
    assert federated_width(cohort_of(shards)) == pytest.approx(pooled, rel=0.05)


def test_the_width_follows_the_units_of_the_columns():
    x = np.random.default_rng(2).normal(size=(500, 3))
    widths = [federated_width(cohort_of(split_rows(x * unit, [250, 250]))) for unit in (1e-9, 1.0, 1e9)]
    np.testing.assert_allclose(np.array(widths) / [1e-9, 1.0, 1e9], widths[1], rtol=0.01)


def test_small_cells_are_not_told():
    x = np.random.default_rng(2).normal(size=(104, 3))
    x[4] = 1e6  # one row far away: its 99 distances share a few bins, so lone pairs are what must be missing
    cohort = cohort_of(split_rows(x, [4, 100]))
    request = landmark_exchange.WidthRequest(np.int32(0), np.int64(0))
    ((_, batch),) = list(cohort.ask(landmark_exchange.distance_histogram, request))
    assert batch.counts.part(0).size == 0
    assert batch.counts.part(1).min() >= 5


# Refusals


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: RandomFourier(0),
            "size of RandomFourier must be a whole number that is even and >= 2, since features come in pairs of cos",
        ),
        (lambda: OrthogonalRandom(7), "size of OrthogonalRandom must be a whole number that is even and >= 2, .*, got 7"),
        (lambda: RandomFourier(4, width=0.0), "width of RandomFourier must be a finite number > 0, got 0.0"),
        (lambda: OrthogonalRandom(4, width=np.inf), "width of OrthogonalRandom must be a finite number > 0, got inf"),
        (lambda: RandomFourier(4, kernel="cubic"), "kernel of RandomFourier must be 'gaussian' or 'laplace', got 'cubic'"),
        (lambda: Nystroem(X, kernel="cubic"), "kernel of Nystroem must be 'gaussian' or 'laplace', got 'cubic'"),
        (lambda: Nystroem(np.zeros(3)), r"Nystroem needs a finite table of at least one landmark, got .* \(3,\)"),
        (lambda: Nystroem(X).transform(X[:, :3]), "landmarks have 5 columns, the rows have 3: draw landmarks from the same"),
        (lambda: Polynomial(0), "degree of Polynomial must be a whole number >= 1, got 0"),
        (lambda: Polynomial(3).num_features(784), "degree 3 has 80931144 features on 784 columns, .*: lower the degree"),
    ],
)
def test_bad_settings_are_refused_with_a_sentence(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"size": 0}, ConfigError, "size of federated_landmarks must be a whole number >= 1, got 0"),
        ({"size": 3, "smallest_group": 2}, ConfigError, "smallest_group must be >= 5, so that no mean tells a row, got 2"),
        ({"size": 100}, ConfigError, r"the sites gave \d+ groups of at least 5 rows for 100 landmarks: ask for at most"),
    ],
)
def test_landmarks_that_cannot_be_had_are_refused(settings, error, sentence):
    with pytest.raises(error, match=sentence):
        federated_landmarks(cohort_of(make_shards()), **settings)


def test_widths_that_cannot_be_had_are_refused():
    with pytest.raises(ConfigError, match="kernel of federated_width must be 'gaussian' or 'laplace', got 'cubic'"):
        federated_width(cohort_of(make_shards()), "cubic")
    with pytest.raises(DataError, match="no site has enough rows"):
        federated_width(cohort_of(split_rows(X[:8], [4, 4])))
    with pytest.raises(DataError, match="identical to each other: give the kernel width"):
        federated_width(cohort_of(split_rows(np.ones((50, 3)), [50])))


@pytest.mark.parametrize("loss", [fedns.Logistic(), Squared()], ids=lambda loss: loss.name)
def test_a_kernel_machine_trains_like_any_other_problem(loss):
    shards = make_shards(regression=isinstance(loss, Squared))
    problem = Problem(loss, Ridge(1e-2), feature_map=RandomFourier(40, width=3.0))
    history = fedns.simulate(fedns.FedNewton(), problem, shards, rounds=30, gradient_tol=1e-11)
    mapped = Problem(loss, Ridge(1e-2))
    expected = pooled_optimum(mapped, problem.feature_map.apply(shards))
    assert history.converged and history.coefficients.size == 40
    np.testing.assert_allclose(history.coefficients, expected.coefficients, atol=1e-8)
    assert pooled_optimum(problem, shards).value == expected.value
