"""Checkpoints: read back to the last bit, or refused in one sentence."""

import json
import os
import zlib
from dataclasses import fields, replace

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.federation.in_process import Federation, job

from fedns.algorithms import METHODS
from fedns.core.errors import DataError
from fedns.core.files import write_whole
from fedns.federation.coordinator.checkpoint import Checkpoint
from fedns.federation.protocol.policy import Policy

FEDERATED = [name for name in METHODS if not METHODS[name].pooled]
VARIANTS = ["fednl:variant=pp", "fednl:compressor=topk"]
SHARDS = make_shards(sizes=(90, 60, 150))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The file of a finished run."""
    there = Federation(SHARDS, tmp_path_factory.mktemp("run"), job("fednl", rounds=3))
    there.start()
    return there.checkpoint.read_bytes()


def written(values):
    """A checkpoint file with these values and a checksum that is right."""
    body = json.dumps(values).encode()
    return f"{zlib.crc32(body):08x}\n".encode() + body


def values_in(data):
    return json.loads(data.partition(b"\n")[2])


def assert_same_bits(one, other):
    assert type(one) is type(other)
    for name in one.specs():
        a, b = (np.asarray(getattr(state, name)) for state in (one, other))
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), name


@pytest.mark.parametrize("method", FEDERATED + VARIANTS)
def test_every_methods_state_is_read_back_to_the_last_bit(method, tmp_path, monkeypatch):
    written, save = [], Checkpoint.save
    monkeypatch.setattr(Checkpoint, "save", lambda self, path: (written.append(self), save(self, path)))
    there = Federation(SHARDS, tmp_path, job(method, rounds=3))
    history = there.start()
    found = Checkpoint.load(there.checkpoint)
    assert len(written) == 4  # the start, and after each round
    assert_same_bits(found.state, written[-1].state)
    others = [f.name for f in fields(Checkpoint) if f.name != "state"]
    assert [getattr(found, name) for name in others] == [getattr(written[-1], name) for name in others]
    assert found.progress.records == history.records and found.committed_rounds == [4, 4, 4]
    assert found.state.coefficients.tobytes() == history.coefficients.tobytes()


def test_saving_what_was_loaded_writes_the_same_file(saved, tmp_path):
    (tmp_path / "one").write_bytes(saved)
    Checkpoint.load(tmp_path / "one").save(tmp_path / "deep" / "folder" / "two")
    assert (tmp_path / "deep" / "folder" / "two").read_bytes() == saved


def test_numbers_that_text_tends_to_change_are_kept(saved, tmp_path):
    (tmp_path / "one").write_bytes(saved)
    found = Checkpoint.load(tmp_path / "one")
    values = {name: np.array(getattr(found.state, name)) for name in found.state.specs()}
    values["coefficients"][:4] = [-0.0, 5e-324, 1.7976931348623157e308, 0.1]
    odd = {"a": float("nan"), "b": -0.0, "c": float("inf"), "d": 1 / 3}
    records = [*found.records[:-1], replace(found.records[-1], suboptimality=-1e-17, diagnostics=odd)]
    replace(found, state=type(found.state)(**values), records=records).save(tmp_path / "two")
    again = Checkpoint.load(tmp_path / "two")
    assert_same_bits(again.state, type(found.state)(**values))
    assert repr(again.records) == repr(records)


def test_no_file(tmp_path):
    with pytest.raises(DataError, match=r"there is no checkpoint at '.*none': nothing to resume, start without --resume"):
        Checkpoint.load(tmp_path / "none")
    with pytest.raises(DataError, match="there is no checkpoint at"):
        Checkpoint.load(tmp_path)  # a folder


@pytest.mark.parametrize("kept", [0, 1, 8, 9, 10, 200, -1])
def test_a_truncated_file_is_damaged(kept, saved, tmp_path):
    (tmp_path / "c").write_bytes(saved[:kept])
    with pytest.raises(DataError, match=r"'.*c' is damaged: its checksum does not match; restore it from a copy, or start"):
        Checkpoint.load(tmp_path / "c")


def test_a_change_of_any_byte_is_noticed(saved, tmp_path):
    for at in np.random.default_rng(0).integers(0, len(saved), 60):
        changed = bytearray(saved)
        changed[at] ^= 1 << int(at) % 8
        (tmp_path / "c").write_bytes(bytes(changed))
        with pytest.raises(DataError, match=r"'.*c' is damaged"):
            Checkpoint.load(tmp_path / "c")


@pytest.mark.parametrize("data", [b"\0" * 1000, b"not a checkpoint\n", b"\n", b"\xff" * 50])
def test_another_file_is_damaged(data, tmp_path):
    (tmp_path / "c").write_bytes(data)
    with pytest.raises(DataError, match="is damaged"):
        Checkpoint.load(tmp_path / "c")


@pytest.mark.parametrize(
    "change",
    [
        {"fedns_checkpoint": 2},
        {"state_kind": "fedns.algorithms.gone.State"},
        {"state_kind": "fedns.core.algorithm.State"},  # one with other fields
        {"state": ""},
        {"job": '{"method":"fedns"}'},
        {"records": [{"round": 0}]},
        {"meter": {"bits": 0}},
    ],
    ids=lambda change: f"{change}"[:40],
)
def test_a_file_of_another_version_says_so(change, saved, tmp_path):
    (tmp_path / "c").write_bytes(written(values_in(saved) | change))
    with pytest.raises(DataError, match=r"'.*c' was written by another version of fedns") as refused:
        Checkpoint.load(tmp_path / "c")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", [f.name for f in fields(Checkpoint)] + ["fedns_checkpoint", "state_kind"])
def test_a_file_without_something_is_of_another_version(name, saved, tmp_path):
    values = values_in(saved)
    del values[name]
    (tmp_path / "c").write_bytes(written(values))
    with pytest.raises(DataError, match=r"'.*c' was written by another version of fedns"):
        Checkpoint.load(tmp_path / "c")


@pytest.mark.parametrize("values", [[], None, 3, "text", {}])
def test_json_that_is_no_checkpoint(values, tmp_path):
    (tmp_path / "c").write_bytes(written(values))
    with pytest.raises(DataError, match=r"'.*c' was written by another version of fedns"):
        Checkpoint.load(tmp_path / "c")


def test_what_a_crash_in_mid_write_leaves_is_ignored(saved, tmp_path):
    path = tmp_path / "checkpoint"
    path.write_bytes(saved)
    for process in (os.getpid(), 4711):
        (tmp_path / f"checkpoint.{process}.partial").write_bytes(saved[:100])
    found = Checkpoint.load(path)
    found.save(path)  # over the leftover of a process that had the same number
    assert path.read_bytes() == saved
    assert not (tmp_path / f"checkpoint.{os.getpid()}.partial").exists()


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_crash_at_any_step_of_writing_leaves_the_old_file(step, tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, b"old")

    def crash(*_):
        raise KeyboardInterrupt

    data = b"new"
    if step == "write":
        data = memoryview(b"new")[::2]  # a file refuses to write it
    else:
        monkeypatch.setattr(*{"fsync": (os, "fsync"), "replace": ("pathlib.Path.replace",)}[step], crash)
    with pytest.raises((KeyboardInterrupt, BufferError)):
        write_whole(path, data)
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_whole(durable, tmp_path):
    path = tmp_path / "new folder" / "file"
    for data in (b"first", b"", b"third, and longer"):
        write_whole(path, data, durable=durable)
        assert path.read_bytes() == data
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("absent", ["wait", "renormalise"])
def test_a_site_whose_answer_was_lost_before_the_crash_is_put_right_after_it(absent, tmp_path):
    """Its part in round 2 was not used. A coordinator that has only the checkpoint must tell it so all the same."""

    def run(folder, *, crash):
        policy = Policy(patience_seconds=600.0 if absent == "wait" else 0.0, absent=absent)
        there = Federation(SHARDS, tmp_path / folder, job("fednl", rounds=5), policy)
        answer = there.transport.services["site-1"]

        def lost_once(frame):
            reply = answer(frame)
            return b"" if there.transport.exchanges == 7 else reply  # in round 2

        def before(site, exchange):
            if crash and exchange == 10:  # round 3 begins
                raise KeyboardInterrupt
            return ""

        there.transport.services["site-1"], there.transport.before = lost_once, before
        if not crash:
            return there.start()
        with pytest.raises(KeyboardInterrupt):
            there.start()
        return there.start(resume=True)

    assert run("crash", crash=True).coefficients.tobytes() == run("steady", crash=False).coefficients.tobytes()
