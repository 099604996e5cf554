"""Whether the coordinator can be reached and believed, and until when certificates hold: for sites, and for the doctor."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

WARNED_DAYS = 30.0  # before a certificate ends


@dataclass(frozen=True)
class Contact:
    """Where a site finds its coordinator, and by what both are known, as credentials say it."""

    host: str
    port: int
    authority: Path  # the certificate that vouches for the coordinator's
    certificates: tuple[Path, ...] = ()  # of whoever holds these credentials
    key: Path | None = None
    presented: bool = False  # the first certificate is shown to the other end
    known: frozenset[str] | None = None  # at a coordinator that knows sites by their keys, their names


def why_unreachable(contact: Contact, seconds: float = 5.0) -> str:
    """Why nobody who can be trusted answers there, in a sentence; nothing where somebody does."""
    where = f"port {contact.port} of {contact.host}"
    try:
        socket.getaddrinfo(contact.host, contact.port)
    except OSError:
        return f"the name '{contact.host}' cannot be resolved: correct it, or the name service of this machine"
    try:
        with socket.create_connection((contact.host, contact.port), seconds) as plain:
            return _why_distrusted(plain, contact, where)
    except TimeoutError:
        return f"{where} does not answer: is a firewall between?"
    except OSError as error:
        return f"{where}: {(error.strerror or str(error)).lower()}: is the coordinator running there?"


def _why_distrusted(plain: socket.socket, contact: Contact, where: str) -> str:
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
        return f"the certificate at {where} cannot be trusted: {error.verify_message}"
    except ssl.SSLError as error:
        return f"{where} does not speak TLS as expected: {error.reason or error}"
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
