"""Downloading from a server on loopback: resumed, refused, damaged, offline, on a full disk; and what loads afterwards."""

import bz2
import errno
import gzip
import hashlib
import json
import lzma
import re
import socket
import sys
import threading
import tracemalloc
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_svmlight_file
from tests.processes import wait_until

from fedns.core.errors import DataError
from fedns.lab.data import catalogue
from fedns.lab.data.catalogue import available
from fedns.lab.data.collection import cache, download, fetch
from fedns.lab.data.datasets import load
from fedns.studies.tables.files.compact import compact
from fedns.studies.tables.files.libsvm import read_libsvm
from fedns.studies.tables.files.npz import read_npz


def make_text(path, rows=200, columns=8, density=1.0, seed=0, dtype=np.float32):
    """A LIBSVM file and what it holds."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, columns)).astype(dtype)
    features[random.random(features.shape) > density] = 0
    features[:, -1] = 1
    targets = np.where(random.random(rows) > 0.5, 1, 0)
    with path.open("w") as stream:  # not by scikit-learn, whose 16 digits do not bring every number back
        for row, target in zip(features.astype(np.float64), targets, strict=True):
            print(target, *(f"{column + 1}:{value!r}" for column, value in enumerate(row.tolist()) if value), file=stream)
    return features, targets


class Handler(BaseHTTPRequestHandler):
    """Honours Range and If-Range; `cuts` says after how many bytes each answer in turn breaks off."""

    protocol_version = "HTTP/1.0"

    def do_GET(self):
        content = self.server.files.get(self.path)
        ranged = self.headers.get("Range")
        self.server.asked.append((self.path, ranged))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if content is None or status != 200:
            return self.send_error(404 if content is None else status)
        start = 0
        if ranged and self.server.tag and self.headers.get("If-Range") == self.server.tag:
            start = int(re.fullmatch(r"bytes=(\d+)-", ranged)[1])
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        if self.server.tag:
            self.send_header("ETag", self.server.tag)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.server.stall.wait(10)
        cut = self.server.cuts.pop(0) if self.server.cuts else None
        return self.wfile.write(content[start:] if cut is None else content[start : start + cut])

    def log_message(self, *_):
        pass


@contextmanager
def serving():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False  # so that closing the server joins them
    server.files, server.asked, server.cuts, server.statuses, server.tag = {}, [], [], [], '"one"'
    server.stall = threading.Event()
    server.stall.set()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.stall.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A collection on loopback, and a cache of its own."""
    pytest.importorskip("requests")
    monkeypatch.setenv("FEDNS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDNS_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", (5.0, 5.0))
    with serving() as server:
        monkeypatch.setenv("FEDNS_LIBSVM_URL", f"http://127.0.0.1:{server.server_port}/sets")
        yield server


@pytest.fixture
def phishing(server, tmp_path):
    """The server holds a plain file called phishing."""
    features, targets = make_text(tmp_path / "phishing.txt", density=0.3, columns=68)
    server.files["/sets/binary/phishing"] = (tmp_path / "phishing.txt").read_bytes()
    return features, targets


def final_names(tmp_path):
    return sorted(path.name for path in (tmp_path / "cache").iterdir() if path.is_file())


def leftovers(tmp_path):
    return sorted(path.name for path in (tmp_path / "cache" / "downloads").rglob("*") if path.suffix != ".lock")


def values_of(features):
    return features.toarray() if scipy.sparse.issparse(features) else features


def test_download_and_load(phishing, server, tmp_path):
    features, targets = phishing
    assert fetch.fetch(["phishing"], progress=False) == [tmp_path / "cache" / "phishing.npz"]
    dataset = load("phishing")
    assert scipy.sparse.issparse(dataset.features) and dataset.task == "binary"
    np.testing.assert_array_equal(dataset.features.toarray(), features.astype(np.float64))
    np.testing.assert_array_equal(dataset.targets, 2 * targets - 1)
    assert dataset.source == f"http://127.0.0.1:{server.server_port}/sets/binary/phishing"
    assert final_names(tmp_path) == ["phishing.json", "phishing.npz"]
    assert leftovers(tmp_path) == []


def test_sidecar_records_what_was_downloaded(phishing, server, tmp_path):
    (archive,) = fetch.fetch("phishing", progress=False)
    content = server.files["/sets/binary/phishing"]
    facts = json.loads((tmp_path / "cache" / "phishing.json").read_text())
    assert facts["sha256"] == hashlib.sha256(content).hexdigest()
    assert (facts["bytes"], facts["rows"], facts["columns"]) == (len(content), 200, 68)
    assert facts["archive_sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("name", "address", "compress"),
    [
        ("covtype", "binary/covtype.libsvm.binary.bz2", bz2.compress),
        ("SUSY", "binary/SUSY.xz", lzma.compress),
        ("SUSY", "binary/SUSY.bz2", bz2.compress),  # what the collection had before
        ("YearPredictionMSD.t", "regression/YearPredictionMSD.t.bz2", bz2.compress),
    ],
)
def test_compressed(server, tmp_path, name, address, compress):
    features, _ = make_text(tmp_path / "text", columns=54, density=0.2)
    server.files[f"/sets/{address}"] = compress((tmp_path / "text").read_bytes())
    (archive,) = fetch.fetch([name], progress=False)
    table = read_npz(archive)
    np.testing.assert_array_equal(values_of(table.features)[:, :54], features)
    assert scipy.sparse.issparse(table.features) == (name != "covtype")
    assert load(name).num_samples == 200


def test_gzip(tmp_path):
    features, _ = make_text(tmp_path / "text")
    (tmp_path / "text.gz").write_bytes(gzip.compress((tmp_path / "text").read_bytes()))
    compact(tmp_path / "text.gz", tmp_path / "out.npz", source="here")
    np.testing.assert_array_equal(read_npz(tmp_path / "out.npz").features, features)


def test_names_as_the_collection_writes_them(server, tmp_path):
    make_text(tmp_path / "text")
    for name in ("cod-rna", "cod-rna.t", "a9a.t"):
        server.files[f"/sets/binary/{name}"] = (tmp_path / "text").read_bytes()
    paths = fetch.fetch(["cod-rna", "cod_rna_t", "A9A.t"], progress=False)
    assert [path.name for path in paths] == ["cod_rna.npz", "cod_rna_t.npz", "a9a_t.npz"]
    for name in ("cod-rna", "cod_rna", "cod-rna.t", "cod_rna_t"):
        assert load(name).name == fetch.archive_name(name)
    assert load("a9a.t").num_columns == 123  # the last columns do not occur in the file


def test_a_cut_download_goes_on_where_it_stopped(phishing, server):
    server.cuts = [1000, 500]
    fetch.fetch("phishing", progress=False)
    assert [ranged for _, ranged in server.asked] == [None, "bytes=1000-", "bytes=1500-"]
    np.testing.assert_array_equal(load("phishing").features.toarray(), phishing[0])


def test_the_next_call_goes_on_too(phishing, server):
    server.cuts = [1000, 0, 0, 0]
    with pytest.raises(DataError, match="broke off after 1000 bytes"):
        fetch.fetch("phishing", progress=False)
    server.asked.clear()
    fetch.fetch("phishing", progress=False)
    assert [ranged for _, ranged in server.asked] == ["bytes=1000-"]
    np.testing.assert_array_equal(load("phishing").features.toarray(), phishing[0])


@pytest.mark.parametrize("tag", [None, 'W/"weak"', '"another"'])
def test_halves_of_different_files_are_not_joined(phishing, server, tmp_path, tag):
    server.cuts, server.tag = [1000, 0, 0, 0], tag if tag != '"another"' else '"one"'
    with pytest.raises(DataError):
        fetch.fetch("phishing", progress=False)
    server.tag = tag
    features, _ = make_text(tmp_path / "changed", density=0.3, columns=68, seed=1)
    server.files["/sets/binary/phishing"] = (tmp_path / "changed").read_bytes()
    fetch.fetch("phishing", progress=False)
    np.testing.assert_array_equal(load("phishing").features.toarray(), features)


def test_truncated_for_good(phishing, server, tmp_path):
    server.cuts = [1000] + [0] * 20
    with pytest.raises(DataError, match=r"binary/phishing cannot be downloaded .*1000 bytes.*check the network"):
        fetch.fetch("phishing", progress=False)
    assert len(server.asked) == 1 + download.ATTEMPTS - 1
    assert final_names(tmp_path) == []
    with pytest.raises(DataError, match="not on this machine: download it with `fedns data fetch phishing`"):
        load("phishing")


def test_a_server_that_always_starts_over_is_given_up(phishing, server, monkeypatch):
    monkeypatch.setattr(download, "PROGRESS_BYTES", 1)
    server.tag, server.cuts = None, [500, 900, 500, 900, 500, 900, 500, 900]
    with pytest.raises(DataError, match="cannot be downloaded"):
        fetch.fetch("phishing", progress=False)
    assert len(server.asked) <= 2 + download.ATTEMPTS


def test_long_downloads_may_break_off_more_often(phishing, server, monkeypatch):
    monkeypatch.setattr(download, "PROGRESS_BYTES", 100)
    server.cuts = [100] * (3 * download.ATTEMPTS)
    fetch.fetch("phishing", progress=False)
    assert len(server.asked) == 3 * download.ATTEMPTS + 1


def test_a_busy_server_is_asked_again(phishing, server):
    server.statuses = [503, 429]
    fetch.fetch("phishing", progress=False)
    assert len(server.asked) == 3


def test_a_server_that_falls_silent_is_given_up(phishing, server, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", (1.0, 0.05))
    server.stall.clear()
    with pytest.raises(DataError, match=r"binary/phishing cannot be downloaded .*check the network"):
        fetch.fetch("phishing", progress=False)
    # The server may hear of the last attempt after it was given up.
    wait_until(lambda: len(server.asked) >= download.ATTEMPTS, "every attempt has been heard of")
    assert len(server.asked) == download.ATTEMPTS


def test_a_part_that_is_too_long_is_dropped(phishing, server, tmp_path):
    server.cuts = [1000, 0, 0, 0]
    with pytest.raises(DataError):
        fetch.fetch("phishing", progress=False)
    (part,) = (tmp_path / "cache" / "downloads").rglob("*.part")
    part.write_bytes(part.read_bytes() * 1000)
    server.statuses = [416]
    fetch.fetch("phishing", progress=False)
    np.testing.assert_array_equal(load("phishing").features.toarray(), phishing[0])


def test_wrong_checksum(phishing, server, tmp_path, monkeypatch):
    monkeypatch.setitem(fetch.CHECKSUMS, "binary/phishing", "0" * 64)
    with pytest.raises(DataError, match=r"does not have the expected SHA-256 0000.*thrown away"):
        fetch.fetch("phishing", progress=False)
    assert final_names(tmp_path) == []
    assert not [name for name in leftovers(tmp_path) if name.startswith("phishing")]
    right = hashlib.sha256(server.files["/sets/binary/phishing"]).hexdigest()
    monkeypatch.setitem(fetch.CHECKSUMS, "binary/phishing", right)
    fetch.fetch("phishing", progress=False)
    assert load("phishing").num_samples == 200


@pytest.mark.parametrize(("status", "problem"), [(404, "does not exist .status 404."), (403, "refused .* .status 403.")])
def test_refused(phishing, server, tmp_path, status, problem):
    server.statuses = [status]
    with pytest.raises(DataError, match=f"binary/phishing (is )?{problem}: check the address of the collection"):
        fetch.fetch("phishing", progress=False)
    assert (len(server.asked), final_names(tmp_path)) == (1, [])


def test_offline(server, tmp_path):
    with socket.socket() as closed:  # bound and not listening: the port is refused, and nobody else gets it
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        with pytest.raises(DataError, match=r"127\.0\.0\.1:\d+ does not answer, or this machine is offline.*try again"):
            fetch.fetch("phishing", base_url=address, progress=False)
    assert final_names(tmp_path) == []


class FullDisk:
    """A file that takes some bytes and then reports a full disk."""

    def __init__(self, stream, room):
        self.stream, self.room = stream, room

    def write(self, data):
        self.room -= len(memoryview(data).cast("B"))
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.stream.write(data)

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()


@pytest.mark.parametrize("file_name", ["phishing.part", "0.npz", "phishing.npz"])
@pytest.mark.parametrize("room", [0, 3000])
def test_full_disk(phishing, tmp_path, monkeypatch, file_name, room):
    genuine = Path.open

    def opened(self, mode="r", *rest, **options):
        stream = genuine(self, mode, *rest, **options)
        return FullDisk(stream, room) if self.name == file_name and mode != "rb" else stream

    with monkeypatch.context() as patch, pytest.raises(DataError) as caught:
        patch.setattr(Path, "open", opened)
        fetch.fetch("phishing", progress=False)
    assert str(caught.value) == (
        f"the disk that holds {tmp_path / 'cache'} is full, so phishing was not stored: "
        "free some space, or name another folder in FEDNS_CACHE"
    )
    assert final_names(tmp_path) == []
    assert not list((tmp_path / "cache" / "downloads").glob("*.npz"))
    fetch.fetch("phishing", progress=False)  # once there is room again
    np.testing.assert_array_equal(load("phishing").features.toarray(), phishing[0])


def test_after_a_full_disk_the_download_is_kept(phishing, server, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(DataError, match="is full"):
        patch.setattr(fetch, "compact", full)
        fetch.fetch("phishing", progress=False)
    fetch.fetch("phishing", progress=False)
    assert len(server.asked) == 1


def test_a_folder_that_cannot_be_made(phishing, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"phishing cannot be stored in .*Not a directory.*FEDNS_CACHE"):
        fetch.fetch("phishing", cache=tmp_path / "file" / "cache", progress=False)


def test_the_second_time_nothing_is_downloaded_or_parsed(phishing, server, monkeypatch):
    first = fetch.fetch("phishing", progress=False)
    monkeypatch.setattr(fetch, "compact", None)
    monkeypatch.setattr("fedns.studies.tables.files.libsvm._parse", None)
    assert fetch.fetch("phishing", progress=False) == first
    assert load("phishing").num_samples == 200
    assert len(server.asked) == 1


@pytest.mark.parametrize("broken", ["archive", "sidecar"])
def test_a_damaged_archive_is_refused_and_fetched_again(phishing, server, broken):
    (archive,) = fetch.fetch("phishing", progress=False)
    path = archive if broken == "archive" else cache.sidecar(archive)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 4] = b"\0\0\0\0"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"does not match the checksum in phishing\.json: run `fedns data fetch phishing`"):
        load("phishing")
    fetch.fetch("phishing", progress=False)
    np.testing.assert_array_equal(load("phishing").features.toarray(), phishing[0])
    assert len(server.asked) == 2


def test_a_file_that_is_no_table_is_not_kept(phishing, server, tmp_path):
    good, server.files["/sets/binary/phishing"] = server.files["/sets/binary/phishing"], b"<html>log in first</html>\n"
    with pytest.raises(DataError, match="phishing, line 1: starts with '<html>log'"):
        fetch.fetch("phishing", progress=False)
    assert (final_names(tmp_path), leftovers(tmp_path)) == ([], [])
    server.files["/sets/binary/phishing"] = good
    fetch.fetch("phishing", progress=False)


def test_the_folder_wins_over_the_cache(phishing, tmp_path, monkeypatch):
    fetch.fetch("phishing", progress=False)
    assert next(info for info in available() if info.name == "phishing").origin == "cache"
    folder = tmp_path / "folder"
    folder.mkdir()
    np.savez(folder / "phishing.npz", X=np.eye(3), y=np.array([0, 1, 1]), source=np.array("by hand"))
    monkeypatch.setenv("FEDNS_DATA", str(folder))
    assert load("phishing").source == "by hand"
    assert [(info.rows, info.origin) for info in available() if info.name == "phishing"] == [(3, "by hand")]


def test_the_list_does_not_read_what_it_need_not(phishing, monkeypatch):
    fetch.fetch("phishing", progress=False)
    monkeypatch.setattr(cache, "sha256", None)
    monkeypatch.setattr(catalogue, "infer_task", None)
    info = next(info for info in available() if info.name == "phishing")
    assert (info.rows, info.columns, info.task, info.origin) == (200, 68, "binary", "cache")


def test_the_argument_wins_over_the_variables(phishing, server, tmp_path, monkeypatch):
    address = f"http://127.0.0.1:{server.server_port}/sets/"
    monkeypatch.setenv("FEDNS_LIBSVM_URL", "http://127.0.0.1:9/")
    (archive,) = fetch.fetch("phishing", base_url=address, cache=tmp_path / "other", progress=False)
    assert archive == tmp_path / "other" / "phishing.npz" and archive.is_file()


def test_progress_goes_to_standard_error(phishing, capsys):
    fetch.fetch("phishing")
    out, err = capsys.readouterr()
    assert out == "" and "phishing" in err


def test_names_are_checked_before_anything_is_downloaded(phishing, server):
    with pytest.raises(
        DataError, match=r"unknown set of the collection 'fishing': did you mean phishing or housing\? Known are a1a,"
    ):
        fetch.fetch(["phishing", "fishing"], progress=False)
    assert server.asked == []


def test_an_address_that_is_none(server):
    with pytest.raises(DataError, match=r"must start with http:// or https://, got 'ftp://127\.0\.0\.1'"):
        fetch.fetch("phishing", base_url="ftp://127.0.0.1", progress=False)


def test_without_the_extra(phishing, monkeypatch):
    monkeypatch.setitem(sys.modules, "requests", None)
    with pytest.raises(DataError, match=r"needs the package requests: install it with pip install 'fedns\[fetch\]'"):
        fetch.fetch("phishing", progress=False)


def test_two_processes_do_not_mix(phishing, tmp_path):
    pytest.importorskip("fcntl")
    (tmp_path / "cache" / "downloads").mkdir(parents=True)
    with (
        cache.alone("phishing", tmp_path / "cache" / "downloads"),
        pytest.raises(DataError, match="another process is fetching phishing"),
    ):
        fetch.fetch("phishing", progress=False)


def test_the_paper_and_the_readme_sets_are_known():
    for name in ["phishing", "cod-rna", "cod-rna.t", "covtype", "SUSY", "a9a", "a9a.t", "w8a", "w8a.t", "abalone_scale"]:
        assert fetch.find(name).name == name
    assert not {remote.archive_name for remote in fetch.COLLECTION.values()} & set(catalogue.BUILT_IN_SHAPES)


@pytest.mark.parametrize("dense", [None, True, False])
@pytest.mark.parametrize(
    ("density", "dtype"), [(1.0, np.float32), (0.6, np.float64), (0.05, np.float32), (0.05, np.float64)]
)
@pytest.mark.parametrize("chunk_bytes", [100, 3000, 1 << 20])
def test_the_stream_agrees_with_the_reader_and_scikit_learn(tmp_path, dense, density, dtype, chunk_bytes):
    make_text(tmp_path / "text", rows=150, columns=30, density=density, dtype=dtype)
    shape = compact(tmp_path / "text", tmp_path / "out.npz", source="here", dense=dense, chunk_bytes=chunk_bytes)
    table, expected = read_npz(tmp_path / "out.npz"), read_libsvm(tmp_path / "text")
    features, targets = load_svmlight_file(str(tmp_path / "text"), zero_based=False)
    assert shape == expected.features.shape
    assert scipy.sparse.issparse(table.features) == (not (density >= 0.5 if dense is None else dense))
    assert table.features.dtype == dtype  # float32 exactly where it loses nothing
    np.testing.assert_array_equal(values_of(table.features), expected.features.toarray())
    np.testing.assert_array_equal(values_of(table.features), features.toarray())
    np.testing.assert_array_equal(table.targets, expected.targets)
    np.testing.assert_array_equal(table.targets, targets)
    assert table.targets.dtype == np.int8


def test_the_stream_takes_odd_things(tmp_path):
    """Comments, rows without features, targets and values that only float64 holds, infinities and NaN."""
    text = "# a comment\n-1\n1000.5 1:0.5\t3:2e1 # tail\r\n\n2 2:-1e300 3:nan\n3 1:inf 70000:0.1"
    (tmp_path / "odd").write_text(text)
    compact(tmp_path / "odd", tmp_path / "odd.npz", source="here", chunk_bytes=16)
    table, expected = read_npz(tmp_path / "odd.npz"), read_libsvm(tmp_path / "odd")
    np.testing.assert_array_equal(table.features.toarray(), expected.features.toarray())
    np.testing.assert_array_equal(table.targets, [-1, 1000.5, 2, 3])


@pytest.mark.parametrize(("text", "problem"), [("# nothing\n", "text is empty"), ("1\n2\n", "labels but no 'index:value'")])
def test_nothing_to_store(tmp_path, text, problem):
    (tmp_path / "text").write_text(text)
    with pytest.raises(DataError, match=problem):
        compact(tmp_path / "text", tmp_path / "out.npz", source="here")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text"]


def test_the_same_text_gives_the_same_archive(tmp_path):
    make_text(tmp_path / "text")
    for name in ("one.npz", "two.npz"):
        compact(tmp_path / "text", tmp_path / name, source="here")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path):
    """SUSY's shape, shorter: 48 MiB of text stay below 48 MiB, and four times the rows cost the same."""
    line = b"1" + b"".join(b" %d:9.728614687919616699e-01" % column for column in range(1, 19)) + b"\n"
    peaks = []
    for rows in (25_000, 100_000):
        with (tmp_path / "text").open("wb") as stream:
            for _ in range(rows // 1000):
                stream.write(line * 1000)
        tracemalloc.start()
        shape = compact(tmp_path / "text", tmp_path / "out.npz", source="here", columns=18)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert shape == (rows, 18)
    assert (tmp_path / "text").stat().st_size > 44 << 20
    assert peaks[1] < 48 << 20
    assert peaks[1] < 1.1 * peaks[0]
