"""Whether the coordinator can be reached and believed, and until when certificates hold: for sites, and for the doctor."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedns.core.errors import FednsError

WARNED_DAYS = 30.0  # before a certificate ends
RECENT_SECONDS = (
    120.0  # for so long a visitor who was turned away is spoken of: a site that is kept out tries on, or is started again
)
_HANDSHAKE = "Handshake failed"  # gRPC's words for it, and ours
# What stands behind them in a log, and what it means. An alert that OpenSSL sends before keys are agreed on is a packet of a
# wrong length to gRPC: it comes from a visitor who does not believe the certificate that was shown.
_VISITORS = {
    "unable to get local issuer certificate": "a visitor's certificate is of another authority",
    "certificate has expired": "a visitor's certificate has expired",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "a visitor has no certificate",
    "CERTIFICATE_EXPIRED": "a visitor finds this coordinator's certificate expired",
    "UNKNOWN_CA": "a visitor does not know this coordinator's authority",
    "BAD_PACKET_LENGTH": "a visitor does not know this coordinator's authority",
}


@dataclass(frozen=True)
class Contact:
    """Where a site finds its coordinator, and by what both are known, as credentials say it."""

    host: str
    port: int
    authority: Path  # the certificate that vouches for the coordinator's
    certificates: tuple[Path, ...] = ()  # of whoever holds these credentials
    key: Path | None = None
    presented: bool = False  # the first certificate is shown to the other end
    known: Mapping[str, Path] | None = None  # at a coordinator that knows sites by their keys, the public key of each
    name: str = ""  # of the site whose credentials these are

    @property
    def address(self) -> str:
        """The coordinator's, as it is written in web addresses."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class DistrustError(FednsError):
    """Whoever answers there and these credentials do not go together: trying again would not help."""


def nobody_listens(contact: Contact) -> bool:
    """Whether the machine is there and the port is closed, as long as no coordinator is started."""
    try:
        socket.create_connection((contact.host, contact.port), 1.0).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def shows(host: str, port: int, certificate: Path) -> bool:
    """Whether whoever listens there holds this very certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is compared, whoever has signed it
    try:
        with socket.create_connection((host, port), 1.0) as plain, context.wrap_socket(plain) as secret:
            shown = secret.getpeercert(binary_form=True)
        return shown == ssl.PEM_cert_to_DER_cert(certificate.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False


def why_unreachable(contact: Contact, seconds: float = 5.0) -> str:
    """Why nobody who can be trusted answers there, in a sentence; nothing where somebody does."""
    try:
        return why_not_there(contact, seconds)
    except DistrustError as error:
        return str(error)


def why_not_there(contact: Contact, seconds: float = 5.0) -> str:
    """Why nobody answers there now, or nothing; raises DistrustError where somebody does who cannot be trusted."""
    where = f"port {contact.port} of {contact.host}"
    try:
        socket.getaddrinfo(contact.host, contact.port)
    except OSError:
        return f"the name '{contact.host}' cannot be resolved: correct it, or the name service of this machine"
    try:
        with socket.create_connection((contact.host, contact.port), seconds) as plain:
            return _greeted(plain, contact, where)
    except TimeoutError:
        return f"{where} does not answer: is a firewall between?"
    except OSError as error:
        return f"{where}: {(error.strerror or str(error)).lower()}: is the coordinator running there?"


def _greeted(plain: socket.socket, contact: Contact, where: str) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        context.load_verify_locations(cafile=str(contact.authority))
        if contact.presented:
            context.load_cert_chain(contact.certificates[0], contact.key)
        with context.wrap_socket(plain, server_hostname=contact.host) as secret:
            if contact.presented:
                secret.recv(1)  # what the other end thinks of our certificate comes with its first word
            return ""
    except ssl.SSLCertVerificationError as error:
        raise DistrustError(f"the certificate at {where} cannot be trusted: {error.verify_message}") from None
    except (ssl.SSLZeroReturnError, ssl.SSLEOFError) as error:
        return f"{where} breaks the connection off: {error.reason or error}"
    except ssl.SSLError as error:
        raise DistrustError(f"{where} does not speak TLS as expected: {error.reason or error}") from None
    except OSError as error:
        return f"{where} breaks the connection off: {error}"


def days_left(certificate: Path) -> float:
    """How long a certificate holds from now on; negative once it has ended."""
    from cryptography import x509

    ends = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    return (ends.timestamp() - time.time()) / 86400


def expiring(certificates: Iterable[Path]) -> list[str]:
    """A sentence for every certificate that has ended or soon will."""
    found = []
    for path in certificates:
        days = days_left(path)
        if days < WARNED_DAYS:
            when = f"ends in {days:.0f} days" if days >= 0 else "has expired"
            found.append(f"the certificate {path.name} {when}: have it renewed with `fedns renew`")
    return found


class Visitors:
    """Visitors who came to an engine's server and could not be let in, as the server's log has it."""

    def __init__(self, log: Path, start: int = 0) -> None:
        """start: the length of the log when the server was started."""
        self._log, self._read = log, start
        self._last, self._when = "", -RECENT_SECONDS

    def turned_away(self) -> str:
        """Say what was wrong with the last of them, where that was a moment ago."""
        found = ""
        with suppress(OSError), self._log.open("rb") as file:  # no run ends because of a log that is gone
            file.seek(self._read)
            found = file.read().decode(errors="replace")
            self._read = file.tell()
        for line in (line for line in found.splitlines() if _HANDSHAKE in line):
            for meaning in (meaning for words, meaning in _VISITORS.items() if words in line):
                self._last, self._when = meaning, time.monotonic()
        return self._last if time.monotonic() - self._when < RECENT_SECONDS else ""
