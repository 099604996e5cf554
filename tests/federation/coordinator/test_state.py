"""The state of a run: fresh, saved, and read back to the last bit or refused in one sentence."""

import json
import os
import zlib
from dataclasses import replace

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.federation.in_process import Federation, run_of

from fedns.core.errors import ConfigError, DataError
from fedns.core.files import write_whole
from fedns.federation.coordinator.state import CHECKPOINT_FILE, EPOCH_FILE, RunState
from fedns.methods import METHODS
from fedns.runs.over_sites import Policy

FEDERATED = [name for name in METHODS if not METHODS[name].pooled]
VARIANTS = ["fednl:variant=pp", "fednl:compressor=topk"]
SHARDS = make_shards(sizes=(90, 60, 150))
SPEC = run_of("fednl", rounds=3)
SAVED = ("run", "epoch", "exchange", "committed_rounds", "records")
WRITTEN = ("agreed", "num_features", "total_weights", "meter", "state", "state_kind", "fedns_checkpoint")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The file of a finished run."""
    there = Federation(SHARDS, tmp_path_factory.mktemp("run"), SPEC)
    there.start()
    return there.checkpoint.read_bytes()


def put(data, folder):
    """This as the checkpoint of a folder."""
    (folder / CHECKPOINT_FILE).write_bytes(data)
    return folder


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
    saves, save = [], RunState.save
    monkeypatch.setattr(RunState, "save", lambda self: (saves.append(self.session.round), save(self)))
    there = Federation(SHARDS, tmp_path, run_of(method, rounds=3))
    history = there.start()
    loaded = RunState.load(there.spec, tmp_path)
    assert saves == [0, 1, 2, 3]
    assert_same_bits(loaded.method_state, there.state.method_state)
    assert [getattr(loaded, name) for name in SAVED] == [getattr(there.state, name) for name in SAVED]
    assert loaded.total_weights.tobytes() == there.state.total_weights.tobytes()
    session, before = loaded.session, there.state.session
    assert (session.meter, session.round, session.num_features) == (before.meter, before.round, before.num_features)
    assert loaded.progress.records == history.records and loaded.committed_rounds == [4, 4, 4]
    assert loaded.method_state.coefficients.tobytes() == history.coefficients.tobytes()


def test_saving_what_was_loaded_writes_the_same_file(saved, tmp_path):
    state = RunState.load(SPEC, put(saved, tmp_path))
    state.folder = tmp_path / "deep" / "folder"
    state.save()
    assert (state.folder / CHECKPOINT_FILE).read_bytes() == saved


def test_numbers_that_text_tends_to_change_are_kept(saved, tmp_path):
    state = RunState.load(SPEC, put(saved, tmp_path))
    values = {name: np.array(getattr(state.method_state, name)) for name in state.method_state.specs()}
    values["coefficients"][:4] = [-0.0, 5e-324, 1.7976931348623157e308, 0.1]
    odd = {"a": float("nan"), "b": -0.0, "c": float("inf"), "d": 1 / 3}
    state.records[-1] = replace(state.records[-1], suboptimality=-1e-17, diagnostics=odd)
    state.method_state = type(state.method_state)(**values)
    state.save()
    again = RunState.load(SPEC, tmp_path)
    assert_same_bits(again.method_state, state.method_state)
    assert repr(again.records) == repr(state.records)


def test_a_resumed_run_has_an_epoch_that_no_site_has_seen(saved, tmp_path):
    put(saved, tmp_path)
    assert RunState.open(SPEC, tmp_path, resume=True).epoch == 1
    assert RunState.open(SPEC, tmp_path, resume=True).epoch == 2  # though no round was finished in between
    (tmp_path / EPOCH_FILE).write_text("7")
    assert RunState.load(SPEC, tmp_path).epoch == 7


def test_a_folder_that_holds_a_run_is_not_written_over(saved, tmp_path):
    with pytest.raises(ConfigError, match="holds a run already: go on with --resume, or give another 'out'"):
        RunState.open(SPEC, put(saved, tmp_path), resume=False)


def test_an_experiment_that_has_changed_is_not_resumed(saved, tmp_path):
    with pytest.raises(ConfigError, match=r"agreed with the sites has changed since the run in .* began: start anew"):
        RunState.load(replace(SPEC, strength=0.5), put(saved, tmp_path))


def test_no_file(tmp_path):
    with pytest.raises(
        DataError, match=r"there is no checkpoint at '.*none/checkpoint': nothing to resume, start without --resume"
    ):
        RunState.load(SPEC, tmp_path / "none")
    (tmp_path / CHECKPOINT_FILE).mkdir()
    with pytest.raises(DataError, match="there is no checkpoint at"):
        RunState.load(SPEC, tmp_path)


@pytest.mark.parametrize("kept", [0, 1, 8, 9, 10, 200, -1])
def test_a_truncated_file_is_damaged(kept, saved, tmp_path):
    put(saved[:kept], tmp_path)
    with pytest.raises(
        DataError, match=r"'.*checkpoint' is damaged: its checksum does not match; restore it from a copy, or start"
    ):
        RunState.load(SPEC, tmp_path)


def test_a_change_of_any_byte_is_noticed(saved, tmp_path):
    for at in np.random.default_rng(0).integers(0, len(saved), 60):
        changed = bytearray(saved)
        changed[at] ^= 1 << int(at) % 8
        put(bytes(changed), tmp_path)
        with pytest.raises(DataError, match=r"'.*checkpoint' is damaged"):
            RunState.load(SPEC, tmp_path)


@pytest.mark.parametrize("data", [b"\0" * 1000, b"not a checkpoint\n", b"\n", b"\xff" * 50])
def test_another_file_is_damaged(data, tmp_path):
    put(data, tmp_path)
    with pytest.raises(DataError, match="is damaged"):
        RunState.load(SPEC, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"fedns_checkpoint": 1},
        {"state_kind": "fedns.methods.gone.State"},
        {"state_kind": "fedns.core.algorithm.State"},  # one with other fields
        {"state": ""},
        {"agreed": '{"method":"fedns"}'},
        {"records": [{"round": 0}]},
        {"meter": {"bits": 0}},
    ],
    ids=lambda change: f"{change}"[:40],
)
def test_a_file_of_another_version_says_so(change, saved, tmp_path):
    put(written(values_in(saved) | change), tmp_path)
    with pytest.raises(DataError, match=r"'.*checkpoint' was written by another version of fedns") as refused:
        RunState.load(SPEC, tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", SAVED + WRITTEN)
def test_a_file_without_something_is_of_another_version(name, saved, tmp_path):
    values = values_in(saved)
    del values[name]
    put(written(values), tmp_path)
    with pytest.raises(DataError, match=r"'.*checkpoint' was written by another version of fedns"):
        RunState.load(SPEC, tmp_path)


@pytest.mark.parametrize("values", [[], None, 3, "text", {}])
def test_json_that_is_no_checkpoint(values, tmp_path):
    put(written(values), tmp_path)
    with pytest.raises(DataError, match=r"'.*checkpoint' was written by another version of fedns"):
        RunState.load(SPEC, tmp_path)


def test_what_a_crash_in_mid_write_leaves_is_ignored(saved, tmp_path):
    path = tmp_path / "checkpoint"
    path.write_bytes(saved)
    for process in (os.getpid(), 4711):
        (tmp_path / f"checkpoint.{process}.partial").write_bytes(saved[:100])
    RunState.load(SPEC, tmp_path).save()  # over the leftover of a process that had the same number
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
        there = Federation(SHARDS, tmp_path / folder, run_of("fednl", rounds=5), policy)
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
