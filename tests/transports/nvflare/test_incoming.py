"""Where an NVFlare server listens, as its cells see it when they start."""

import pytest

pytest.importorskip("nvflare")

from nvflare.fuel.f3.cellnet.core_cell import CoreCell

from fedns.transports.nvflare.incoming import at_server, close_down


class Cell:
    """What `start` looks at, and nothing that opens a port."""

    create_internal_listener = True

    def __init__(self, *urls):
        self.root_url = list(urls)

    def set_message_interceptor(self, *_):
        self.closed = True

    def add_incoming_filter(self, *_):
        pass


@pytest.mark.parametrize(
    ("host", "written", "listens"),
    [
        ("10.1.2.3", "grpc://0:8002?admin=true", "grpc://10.1.2.3:8002?admin=true"),
        ("", "grpc://0:8002", "grpc://0:8002"),
        ("10.1.2.3", "grpc://127.0.0.1:8002", "grpc://127.0.0.1:8002"),  # credentials for this machine alone
    ],
)
def test_a_server_listens_where_it_is_told(host, written, listens, monkeypatch):
    started = []
    monkeypatch.setattr(CoreCell, "start", lambda cell: started.append(list(cell.root_url)))
    close_down(at_server, host)
    cell = Cell(written)
    CoreCell.start(cell)
    assert started == [[listens]]
    assert cell.closed and not cell.create_internal_listener
