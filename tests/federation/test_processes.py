"""Ports that are looked for before somebody listens on them."""

import socket
import sys

import pytest

from fedns.federation.processes import LOOPBACK, free_port, listening


@pytest.mark.skipif(sys.platform != "linux", reason="closed connections as Linux keeps them")
def test_a_free_port_is_kept_from_others_until_somebody_names_it():
    port = free_port()
    assert not listening(LOOPBACK, port)
    with socket.socket() as another, pytest.raises(OSError, match="in use"):
        another.bind((LOOPBACK, port))  # as one that is looked for is
    with socket.create_server((LOOPBACK, port)):
        assert listening(LOOPBACK, port)
