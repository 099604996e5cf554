"""A site's rows: parsed once, mapped afterwards, parsed again when their file changes."""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse

from fedns.core.errors import DataError
from fedns.core.shards import Shards
from fedns.federation.config import DataSource, SiteConfig
from fedns.federation.site.budget import fingerprint
from fedns.federation.site.explain import read_from_disk
from fedns.lab.data import datasets
from fedns.lab.data.datasets import load
from fedns.models.problem import Problem
from fedns.numerics import memory
from fedns.numerics import rows as storage
from fedns.numerics.onehot import OneHotRows
from fedns.numerics.rows import DenseRows, SparseRows
from fedns.studies.serving import columns
from fedns.studies.serving.columns import Columns

LIBSVM = "".join(f"{(-1) ** i} {1 + i % 50}:{0.1 * (i + 1)} {60 + i % 7}:{-1.5 * i - 1}\n" for i in range(80))
CSV = "age,dose,w,y\n" + "".join(f"{20 + i},{0.25 * i},{1 + i % 3},{'yes' if i % 4 else 'no'}\n" for i in range(40))


def site_shards(config):
    return Columns(config, datasets.load).shards


def config(folder, **data):
    return SiteConfig("north", "flower", folder, DataSource(**data))


def sparse_site(folder):
    (folder / "rows.svm").write_text(LIBSVM)
    return config(folder, dataset="rows.svm")


def weighted_site(folder):
    (folder / "rows.csv").write_text(CSV)
    return config(folder, dataset="rows.csv", target="y", weight="w", positive="no")


def dense_site(folder):
    random = np.random.default_rng(0)
    np.savez(folder / "rows.npz", X=random.normal(size=(30, 4)), y=np.tile([1, -1], 15))
    return config(folder, dataset="rows.npz")


def parsed(site):
    """What the file holds, read without the cache."""
    source = site.data
    found = load(site.folder / source.dataset, target=source.target, weight=source.weight, positive=source.positive)
    return Shards.from_arrays(
        found.features, found.targets, [found.num_samples], sample_weights=found.sample_weights, columns=found.columns
    )


def arrays_of(shards):
    rows = shards.rows
    own = (rows.flat,) if isinstance(rows, DenseRows) else (rows.data, rows.indices, rows.indptr)
    weights = () if shards.sample_weights is None else (shards.sample_weights,)
    return [*own, shards.targets, shards.starts, shards.stops, *weights]


def assert_same_rows(one, other):
    other = other.narrowed  # a site holds its numbers in the smallest type that has them all
    assert type(one.rows) is type(other.rows)
    assert (one.rows.shape, one.columns, one.names) == (other.rows.shape, other.columns, other.names)
    for a, b in zip(arrays_of(one), arrays_of(other), strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.fixture
def no_parsing(monkeypatch):
    """Fails the test if a file is parsed after this is called."""
    return lambda: monkeypatch.setattr(datasets, "load", lambda *_, **__: pytest.fail("the file was parsed again"))


@pytest.mark.parametrize(("make", "kind"), [(sparse_site, SparseRows), (weighted_site, DenseRows), (dense_site, DenseRows)])
def test_mapped_rows_are_the_parsed_ones(make, kind, tmp_path, no_parsing):
    site = make(tmp_path)
    expected = parsed(site)
    assert_same_rows(site_shards(site), expected)
    no_parsing()
    again = site_shards(site)
    assert_same_rows(again, expected)
    assert type(again.rows) is kind and again.num_clients == 1
    assert (again.sample_weights is None) == (make is not weighted_site)


def test_one_hot_groups_are_an_index_in_the_files_too(tmp_path, no_parsing, monkeypatch):
    monkeypatch.setattr(storage, "_WORTH_COMPILING", 0)
    values = np.hstack([np.full((60, 1), 300.0), np.eye(10)[np.arange(60) % 10]])
    np.savez(tmp_path / "rows.npz", X=values, y=np.tile([1, -1], 30))
    site = config(tmp_path, dataset="rows.npz")
    wide, _ = parsed(site), site_shards(site)
    no_parsing()
    again = site_shards(site)
    assert isinstance(again.rows, OneHotRows) and again.rows.nbytes == 60 * 3
    np.testing.assert_array_equal(again.rows.block(0, 60), values)
    assert fingerprint(again) == fingerprint(wide)


@pytest.mark.parametrize("make", [sparse_site, weighted_site, dense_site])
def test_the_kernels_take_mapped_rows_as_they_are(make, tmp_path):
    site = make(tmp_path)
    w = np.linspace(-0.1, 0.1, parsed(site).num_columns)
    for _ in range(2):
        gradient = Problem().gradient(w, site_shards(site))
        assert gradient.tobytes() == Problem().gradient(w, parsed(site)).tobytes()


@pytest.mark.parametrize("make", [sparse_site, dense_site])
def test_rows_larger_than_memory_are_read_from_disk_and_said_to_be(make, tmp_path):
    site = make(tmp_path)
    w = np.linspace(-0.1, 0.1, parsed(site).num_columns)
    expected = Problem().gradient(w, parsed(site))
    with memory.limited(50):
        for _ in range(2):
            shards = site_shards(site)
            assert Problem().gradient(w, shards).tobytes() == expected.tobytes()
            assert read_from_disk(shards).endswith("every pass reads them from disk")
    assert read_from_disk(shards) == "" and [path.name for path in (tmp_path / "state/rows").glob("*.partial")] == []


def test_writing_into_mapped_rows_does_not_reach_the_cache(tmp_path, no_parsing):
    site = dense_site(tmp_path)
    site_shards(site).targets[:] = 7.0
    no_parsing()
    assert_same_rows(site_shards(site), parsed(site))


def test_a_new_process_maps_what_another_has_parsed(tmp_path):
    site = sparse_site(tmp_path)
    code = (
        "import sys; from pathlib import Path; from fedns.lab.data.datasets import load\n"
        "from fedns.federation.config import DataSource, SiteConfig\n"
        "from fedns.studies.serving.columns import Columns\n"
        "if sys.argv[2] == 'mapped': load = None\n"
        "site = SiteConfig('north', 'flower', Path(sys.argv[1]), DataSource('rows.svm'))\n"
        "print(Columns(site, load).shards.rows.data.sum())"
    )
    sums = [
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path), how], capture_output=True, text=True, timeout=120, check=True
        )
        for how in ("parsed", "mapped")
    ]
    assert [float(done.stdout) for done in sums] == [parsed(site).rows.data.sum()] * 2


def test_a_file_that_changes_is_parsed_again(tmp_path):
    site = sparse_site(tmp_path)
    site_shards(site)
    (tmp_path / "rows.svm").write_text(LIBSVM + "1 3:2.5\n")
    assert site_shards(site).num_samples == 81
    assert_same_rows(site_shards(site), parsed(site))


def test_a_change_that_keeps_the_size_is_noticed_by_its_time(tmp_path):
    site = sparse_site(tmp_path)
    before = site_shards(site)
    path = tmp_path / "rows.svm"
    changed = LIBSVM.replace("1 1:0.1 ", "1 1:0.7 ", 1)
    assert len(changed) == len(LIBSVM)
    then = path.stat().st_mtime_ns
    path.write_text(changed)
    os.utime(path, ns=(then + 10**9, then + 10**9))
    assert site_shards(site).rows.data[0] == 0.7
    assert before.rows.data[0] == 0.1  # who has mapped the old rows goes on seeing them


def test_other_settings_are_other_rows(tmp_path):
    site = weighted_site(tmp_path)
    assert site_shards(site).total_weights.tolist() == [79.0]
    other = config(tmp_path, dataset="rows.csv", target="y", positive="yes")
    found = site_shards(other)
    assert found.sample_weights is None and found.num_columns == 3
    np.testing.assert_array_equal(found.targets, -site_shards(site).targets)


def test_a_named_set_has_no_file_to_watch(tmp_path):
    found = site_shards(config(tmp_path, dataset="breast_cancer"))
    assert found.num_samples == 569
    assert not (tmp_path / "state").exists()


def test_a_file_that_cannot_be_parsed_leaves_nothing_behind(tmp_path):
    (tmp_path / "rows.csv").write_text("a,y\n1,0\n,1\n")
    for _ in range(2):
        with pytest.raises(DataError, match="missing"):
            site_shards(config(tmp_path, dataset="rows.csv", target="y"))
    assert not list(tmp_path.rglob("*.npy"))


def test_what_a_crash_in_mid_write_leaves_is_not_taken_for_rows(tmp_path, monkeypatch):
    site, save, calls = sparse_site(tmp_path), np.save, []

    def crash(path, array, **settings):
        calls.append(path)
        if len(calls) == 3:
            raise KeyboardInterrupt
        save(path, array, **settings)

    monkeypatch.setattr(np, "save", crash)
    with pytest.raises(KeyboardInterrupt):
        site_shards(site)
    monkeypatch.setattr(np, "save", save)
    assert_same_rows(site_shards(site), parsed(site))


def test_a_process_that_comes_second_leaves_the_rows_of_the_first(tmp_path, monkeypatch):
    """Both parse; the second must not write into files that the first has mapped."""
    site, first = sparse_site(tmp_path), []

    def parse(source, room, load):
        if not first:
            first.append(None)
            first[0] = site_shards(site)
        return parsed(site)

    monkeypatch.setattr(columns, "_parse", parse)
    second = site_shards(site)
    assert_same_rows(first[0], parsed(site))
    assert_same_rows(second, parsed(site))
    assert [path.suffix for path in (tmp_path / "state" / "rows").iterdir()] == [""]


def test_sparse_rows_stay_sparse(tmp_path):
    site = sparse_site(tmp_path)
    rows = site_shards(site).rows
    matrix = scipy.sparse.csr_matrix((rows.data, rows.indices, rows.indptr), shape=rows.shape)
    np.testing.assert_array_equal(matrix.toarray(), load(tmp_path / "rows.svm").features.toarray())


def timed_site(folder, more=""):
    rows = "".join(f"{20 + i},{1 + i % 9},{int(i % 3 > 0)}\n" for i in range(40))
    (folder / "rows.csv").write_text("age,months,died\n" + rows + more)
    return config(folder, dataset="rows.csv", target="months", event="died")


def test_times_have_a_minus_where_there_was_no_event(tmp_path):
    shards = site_shards(timed_site(tmp_path))
    assert shards.columns == ("age",) and shards.num_columns == 1
    assert shards.targets.tolist() == [(1 + i % 9) * (1 if i % 3 > 0 else -1) for i in range(40)]


def test_events_that_are_none_are_refused(tmp_path):
    with pytest.raises(DataError, match="1 or 0 in that column, and a time above 0"):
        site_shards(timed_site(tmp_path, more="30,4,2\n"))
    with pytest.raises(DataError, match="unknown column 'ill': known are age, died"):
        site_shards(config(tmp_path, dataset="rows.csv", target="months", event="ill"))
