"""What observers write is read back with the tools' own readers."""

from __future__ import annotations

import struct

import pytest
from tests.conftest import make_shards

import fedns

PROBLEM = fedns.Problem(fedns.Logistic(), fedns.Ridge(1e-2))


def watched(observer):
    return fedns.simulate(fedns.FedNewton(), PROBLEM, make_shards(sizes=(150, 150)), rounds=3, observers=[observer])


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    from tensorboardX.proto.event_pb2 import Event

    history = watched(fedns.TensorBoardObserver(tmp_path))
    (path,) = tmp_path.iterdir()
    content, found = path.read_bytes(), {}
    while content:  # a record: its length, a checksum, the event, a checksum
        (length,) = struct.unpack_from("<Q", content)
        event = Event.FromString(content[12 : 12 + length])
        content = content[16 + length :]
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found[value.tag, event.step] = value.simple_value
    for record in history.records:
        assert found["objective", record.round] == pytest.approx(record.objective, rel=1e-6)
        assert found["uplink_bytes", record.round] == pytest.approx(record.uplink_bytes, rel=1e-6)


def test_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    observer = fedns.MlflowObserver(strength=1e-2)
    history = watched(observer)
    assert mlflow.active_run() is None
    client = mlflow.MlflowClient()
    metrics = client.get_metric_history(observer.run_id, "gradient_norm")
    assert [(m.step, m.value) for m in metrics] == [(r.round, r.gradient_norm) for r in history.records]
    run = client.get_run(observer.run_id).data
    assert run.params == {"strength": "0.01", "method": "fednewton"} and run.tags["ending"] == history.stop_reason
