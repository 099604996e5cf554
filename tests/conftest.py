"""Data that several suites share."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import settings

import fedns
from fedns.core.shards import Shards

pytest_plugins = ["tests.browser.visiting"]

# No example has a time limit: the first one may have to compile a kernel, and machines are busy.
settings.register_profile("fedns", deadline=None)
settings.load_profile("fedns")


HOME = pytest.StashKey[Path]()
_FOLDERS_OF_TOOLS = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "RUSTUP_HOME", "CARGO_HOME")


def pytest_configure(config: pytest.Config) -> None:
    """Tests have a home of their own, which stays empty.

    What other people's programs keep for an account, as browsers and matplotlib do, goes beside it. It is set before
    anything is imported, and in the environment, because processes that tests start have homes too.
    """
    place = Path(tempfile.mkdtemp(prefix="fedns-tests-"))
    config.stash[HOME] = place / "home"
    config.stash[HOME].mkdir()
    patch = pytest.MonkeyPatch()
    config.add_cleanup(lambda: shutil.rmtree(place, ignore_errors=True))
    config.add_cleanup(patch.undo)
    patch.setenv("HOME", str(config.stash[HOME]))
    for variable in _FOLDERS_OF_TOOLS:
        patch.setenv(variable, str(place / "tools"))


def left_at(home: Path) -> list[str]:
    """What is in a home, and is then taken out of it, so that one test answers for it."""
    left = sorted(path.relative_to(home).as_posix() for path in home.rglob("*"))
    if left:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(exist_ok=True)
    return left


@pytest.fixture(autouse=True)
def nothing_is_left_at_home(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    assert not left_at(request.config.stash[HOME]), "left in the home: what a test writes belongs into tmp_path"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What a process of a module's fixture left after the last test."""
    if left := left_at(session.config.stash[HOME]):
        print(f"\nleft in the home after the last test: {', '.join(left)}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_report_header() -> str:
    folder = os.environ.get("FEDNS_DATA")
    return f"real data: {'FEDNS_DATA is set' if folder else 'FEDNS_DATA is not set, tests on real data are skipped'}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start processes first: they take minutes, and one of them at the end would have a core to itself."""
    items.sort(key=lambda item: not item.path.name.startswith(("test_real_processes", "test_sweep")))


@pytest.fixture(autouse=True)
def secrets_of_this_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Secrets of sites and names of runs follow from the test's name, so that what it draws is the same whenever it runs.

    Not one seed for all tests: those that share a server must not share the names of their runs.
    """
    drawn = random.Random(request.node.nodeid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_bytes", lambda size=None: drawn.randbytes(32 if size is None else size))
        yield


@pytest.fixture(autouse=True)
def files_for_everybody() -> Iterator[None]:
    """Commands of sites and coordinators write for their owner alone, and so would every later test of this process."""
    before = os.umask(0o22)
    yield
    os.umask(before)


def make_shards(
    rows: int = 300,
    columns: int = 13,
    sizes: tuple[int, ...] = (1, 90, 7, 150, 52),
    *,
    seed: int = 0,
    sparse: bool = False,
    dtype: type = np.float64,
    weighted: bool = False,
    regression: bool = False,
) -> Shards:
    """A small problem with unequal clients; four of five entries are zero when sparse."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, columns)).astype(dtype)
    if sparse:
        features[random.random(features.shape) < 0.8] = 0.0
    margins = features @ random.normal(size=columns)
    targets = (
        margins + random.normal(size=rows) if regression else np.where(margins + random.normal(size=rows) > 0, 1.0, -1.0)
    )
    weights = random.integers(1, 4, size=rows).astype(float) if weighted else None
    data = scipy.sparse.csr_matrix(features) if sparse else features
    return Shards.from_arrays(data, targets, sizes, sample_weights=weights)


def dense_features(shards: Shards) -> np.ndarray:
    """The rows as a plain matrix, for oracles."""
    rows = shards.rows
    if hasattr(rows, "flat"):
        return rows.values.astype(np.float64)
    return scipy.sparse.csr_matrix((rows.data, rows.indices, rows.indptr), shape=rows.shape).toarray().astype(np.float64)


@pytest.fixture
def real_data():
    """Load a named real data set, or skip visibly."""

    def load(name: str) -> fedns.Dataset:
        folder = os.environ.get("FEDNS_DATA")
        if not folder or not (Path(folder) / f"{name}.npz").exists():
            pytest.skip(f"{name} is not in FEDNS_DATA")
        return fedns.load(name)

    return load
