"""What is left of an answer at an NVFlare server once it was handed over."""

import threading

import pytest
from tests.processes import wait_until

pytest.importorskip("nvflare", reason="nvflare is not installed")

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.stream_const import StreamDataType, StreamHeaderKey

from fedns.transports.nvflare import kept


class Cell:
    """Takes receipts and sends them nowhere."""

    def fire_and_forget(self, *_, **__):
        return {}


def received(number, payload=b"answer"):
    """A stream of one frame, as NVFlare has received it."""
    headers = {
        MessageHeaderKey.ORIGIN: "ankara",
        StreamHeaderKey.STREAM_ID: number,
        StreamHeaderKey.SEQUENCE: 0,
        StreamHeaderKey.DATA_TYPE: StreamDataType.FINAL,
        StreamHeaderKey.RELIABLE: True,
        StreamHeaderKey.RETRY_TIMEOUT: 3000.0,
        StreamHeaderKey.RETRY_WAIT: 1.0,
    }
    frame = Message(headers, payload)
    task = RxTask.find_or_create_task(frame, Cell())
    task.process_chunk(frame)
    task.stream_future.set_result(payload)
    return task


@pytest.fixture
def notes(monkeypatch):
    monkeypatch.setattr(RxTask, "rx_task_map", {})
    monkeypatch.setattr(RxTask, "_schedule_remove_task", RxTask._schedule_remove_task)
    monkeypatch.setattr(kept, "NOTE_SECONDS", 0.2)
    kept.keep_notes_in_one_thread()
    return RxTask.rx_task_map


def test_a_note_outlives_its_answer_for_a_while_whatever_the_sender_asks_for(notes):
    before = threading.active_count()
    for number in range(50):
        received(number)
    assert len(notes) == 50 and threading.active_count() == before
    wait_until(lambda: not notes, "the notes are gone")


def test_an_answer_that_was_taken_is_held_by_nobody_else(notes):
    task = received(1, b"numbers")
    assert kept.take_payload(Message(task.headers, task.stream_future.result())) == b"numbers"
    assert ("ankara", 1) in notes and task.stream_future.value is None
