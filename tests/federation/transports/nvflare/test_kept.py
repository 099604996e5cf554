"""What a site of NVFlare sends, and what its server keeps."""

import pytest

pytest.importorskip("nvflare", reason="nvflare is not installed")

from nvflare.fuel.f3.stream_cell import StreamCell

from fedns.federation.transports.nvflare import kept


def test_every_message_is_sent_once_also_where_nvflare_wants_a_receipt(monkeypatch):
    sent = []
    monkeypatch.setattr(StreamCell, "send_blob", lambda cell, *arguments, **named: sent.append((arguments, named)))
    kept.send_once()
    StreamCell.send_blob(None, "channel", "topic", "server", "answer", False, optional=True, reliable=True)
    StreamCell.send_blob(None, "channel", "topic", target="server", message="answer")
    (positional, named), (_, others) = sent
    assert positional == ("channel", "topic", "server", "answer", False) and named == {"optional": True, "reliable": False}
    assert others["reliable"] is False
