"""What the log of an engine's server says of visitors who were turned away, and who is not believed at the first word."""

import socket
import ssl
import threading
from types import SimpleNamespace

import pytest

from fedns.core.errors import FednsError
from fedns.federation import reachable
from fedns.federation.reachable import RECENT_SECONDS, Contact, DistrustError, Visitors, why_not_there, why_unreachable

GRPC = "I1119 03:51:12.063127   17222 ssl_transport_security.cc:2563] Handshake failed with error SSL_ERROR_SSL: error:"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "console.txt"
    path.write_text(f"{GRPC}1000007d: certificate has expired\n")  # of a server before this one
    return path


def wrote(log, *lines):
    with log.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        (f"{GRPC}1000007d:SSL routines: unable to get local issuer certificate", "certificate is of another authority"),
        (f"{GRPC}1000007d:SSL routines: certificate has expired", "certificate has expired"),
        (f"{GRPC}100000c0:PEER_DID_NOT_RETURN_A_CERTIFICATE: Invalid", "has no certificate"),
        (
            f"{GRPC}10000070:BAD_PACKET_LENGTH: Invalid certificate verification",
            "does not know this coordinator's authority",
        ),
        ("Handshake failed: TLSV1_ALERT_UNKNOWN_CA", "does not know this coordinator's authority"),
        ("Handshake failed: SSLV3_ALERT_CERTIFICATE_EXPIRED", "finds this coordinator's certificate expired"),
    ],
)
def test_the_last_visitor_who_was_turned_away_is_told_of_for_a_while(line, meaning, log, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(reachable, "time", SimpleNamespace(monotonic=lambda: now[0]))
    visitors = Visitors(log, log.stat().st_size)
    assert visitors.turned_away() == ""
    wrote(log, "Handshake failed: HTTP_REQUEST", "certificate has expired, says nobody")
    assert visitors.turned_away() == ""  # no site speaks like that
    wrote(log, "Handshake failed: PEER_DID_NOT_RETURN_A_CERTIFICATE", line, "Handshake failed: WRONG_VERSION_NUMBER")
    for later in (0.0, RECENT_SECONDS - 1.0):
        now[0] = 1000.0 + later
        assert visitors.turned_away().startswith("a visitor") and visitors.turned_away().endswith(meaning)
    now[0] = 1000.0 + RECENT_SECONDS
    assert visitors.turned_away() == ""
    wrote(log, line)
    assert visitors.turned_away().endswith(meaning)


def test_a_log_that_is_gone_ends_nothing(log):
    visitors = Visitors(log)
    assert visitors.turned_away().endswith("has expired")
    log.unlink()
    assert visitors.turned_away().endswith("has expired") and Visitors(log).turned_away() == ""


class Listener:
    """Does one thing with whoever comes."""

    def __init__(self, deed):
        self.listener, self.deed = socket.create_server(("127.0.0.1", 0)), deed
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.listen)

    def listen(self):
        visitor, _ = self.listener.accept()
        with visitor:
            self.deed(visitor)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.thread.join()
        self.listener.close()


@pytest.fixture
def authority(tmp_path):
    keys = pytest.importorskip("fedns.federation.transports.flower.credentials")
    keys.provision(tmp_path / "f", ["north"], "127.0.0.1", 1)
    return tmp_path / "f" / "coordinator" / "authority.crt"


def contact_at(port, authority):
    return Contact("127.0.0.1", port, authority)


def test_nobody_there_and_a_line_that_breaks_may_be_better_later(authority):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    assert "connection refused: is the coordinator running there?" in why_not_there(contact_at(port, authority))
    with Listener(lambda visitor: visitor.recv(100)) as there:
        assert f"port {there.port} of 127.0.0.1 breaks the connection off" in why_not_there(
            contact_at(there.port, authority)
        )
    said = why_not_there(Contact("no-such-host.invalid", 1, authority))
    assert said.startswith("the name 'no-such-host.invalid' cannot be resolved")


def another_authority(tmp_path):
    from fedns.federation.transports.flower import credentials as keys

    keys.provision(tmp_path / "g", ["north"], "127.0.0.1", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "g" / "coordinator" / "server.crt", tmp_path / "g" / "coordinator" / "server.key")

    def greet(visitor):
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(visitor, server_side=True)

    return greet


@pytest.mark.parametrize("who", ["another authority", "no TLS"])
def test_somebody_who_cannot_be_trusted_stays_so(who, authority, tmp_path):
    def speak_plainly(visitor):
        visitor.recv(100)
        visitor.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        visitor.recv(1000)

    deed = another_authority(tmp_path) if who == "another authority" else speak_plainly
    words = (
        "cannot be trusted: unable to get local issuer" if who == "another authority" else "does not speak TLS as expected"
    )
    with Listener(deed) as there, pytest.raises(DistrustError, match=words):
        why_not_there(contact_at(there.port, authority))
    with Listener(deed) as there:
        assert words in why_unreachable(contact_at(there.port, authority))
    assert issubclass(DistrustError, FednsError)
