"""Who is who in a Flower federation: an own certificate authority, a certificate for the coordinator, a key for every site.

A federation folder holds one folder for the coordinator and one to be handed to each site:

    authority.key                       signs the coordinator's certificate; stays with whoever provisions
    coordinator/                        authority.crt  server.crt  server.key  sites/NAME.pub
    sites/NAME/                         authority.crt  node.key  site.toml (name and server address)

A site's name is bound to its key: the coordinator knows a site by the key it signs with, not by what it says.
Only the `cryptography` package is needed here, which Flower brings along.
"""

from __future__ import annotations

import ipaddress
import shutil
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedns.core.errors import ConfigError
from fedns.core.files import checked_name
from fedns.federation.processes import LOOPBACK
from fedns.federation.protocol.transport import Provisioned
from fedns.federation.reachable import Contact

AUTHORITY_YEARS = 10


def contact(folder: Path) -> Contact:
    """What whoever holds these credentials knows: where the coordinator is, whom to trust, and its own keys."""
    authority = folder / "authority.crt"
    if (folder / "server.crt").is_file():
        known = {path.stem: path for path in sorted((folder / "sites").glob("*.pub"))}
        return Contact(LOOPBACK, 0, authority, (folder / "server.crt",), folder / "server.key", known=known)
    settings = folder / "site.toml"
    if not settings.is_file():
        raise ConfigError(
            f"{folder} holds no credentials: it has neither server.crt nor site.toml; take coordinator/ or sites/NAME of "
            "the provisioned federation"
        )
    values = tomllib.loads(settings.read_text(encoding="utf-8"))
    if missing := {"site", "server"} - values.keys():
        raise ConfigError(f"{settings} lacks {', '.join(sorted(missing))}")
    host, _, port = values["server"].rpartition(":")
    return Contact(host.strip("[]"), int(port), authority, (), folder / "node.key", name=values["site"])


def provision(
    folder: Path,
    sites: Sequence[str],
    host: str,
    port: int,
    *,
    valid_for: timedelta = timedelta(days=365),
    starting: datetime | None = None,
) -> Provisioned:
    """Write what is missing of a federation folder; existing keys and certificates are kept."""
    for site in sites:
        checked_name("a site's name", site)
    start = starting or datetime.now(UTC) - timedelta(minutes=5)  # clocks at sites may be a little behind
    coordinator = folder / "coordinator"
    if not (coordinator / "server.crt").exists():
        _write_server(folder, host.strip("[]"), start, start + valid_for)
    authority = (coordinator / "authority.crt").read_bytes()
    for site in sites:
        credentials = folder / "sites" / site
        if not (credentials / "node.key").exists():
            key = ec.generate_private_key(ec.SECP256R1())  # every request is signed; P-384 takes several times as long
            _write(credentials / "node.key", _private(key, serialization.PrivateFormat.OpenSSH), secret=True)
            public = key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            _write(coordinator / "sites" / f"{site}.pub", public)
        _write(credentials / "authority.crt", authority)
        _write(credentials / "site.toml", f'site = "{site}"\nserver = "{host}:{port}"\n'.encode())
    return Provisioned(coordinator, {site: folder / "sites" / site for site in sites})


def forget(folder: Path, site: str | None) -> None:
    """Drop a site's key, or for None the coordinator's certificate; the authority stays: nothing changes for others."""
    if site is None:
        (folder / "coordinator" / "server.crt").unlink(missing_ok=True)
        return
    (folder / "coordinator" / "sites" / f"{site}.pub").unlink(missing_ok=True)
    shutil.rmtree(folder / "sites" / site, ignore_errors=True)


def _authority(folder: Path, start: datetime) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """The key that vouches for the coordinator, and its certificate: kept, or every site would need a new folder."""
    key_file, certificate_file = folder / "authority.key", folder / "coordinator" / "authority.crt"
    if key_file.exists() and certificate_file.exists():
        key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
        return cast(ec.EllipticCurvePrivateKey, key), x509.load_pem_x509_certificate(certificate_file.read_bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    name = _common_name("fedns federation authority")
    certificate = (
        _certificate(name, name, key, start, start + timedelta(days=365 * AUTHORITY_YEARS), signs=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(key_file, _private(key, serialization.PrivateFormat.PKCS8), secret=True)
    _write(certificate_file, certificate.public_bytes(serialization.Encoding.PEM))
    return key, certificate


def _write_server(folder: Path, host: str, start: datetime, end: datetime) -> None:
    """A key and a certificate for the coordinator's server."""
    authority_key, authority = _authority(folder, start)
    server_key = ec.generate_private_key(ec.SECP256R1())
    # The coordinator also talks to its own server, over loopback.
    names = [_general_name(name) for name in dict.fromkeys([host, "localhost", LOOPBACK])]
    subject = _common_name("fedns coordinator")
    server = (
        _certificate(subject, authority.subject, server_key, start, end, signs=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    _write(folder / "coordinator" / "server.key", _private(server_key, serialization.PrivateFormat.PKCS8), secret=True)
    _write(folder / "coordinator" / "server.crt", server.public_bytes(serialization.Encoding.PEM))


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, start: datetime, end: datetime, signs: bool
) -> x509.CertificateBuilder:
    """What a certificate says of whose it is, from when to when, and whether it signs others."""
    rest = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only")
    uses = {"digital_signature": not signs, "key_cert_sign": signs, "crl_sign": signs}
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), start, end)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
        .add_extension(x509.KeyUsage(**uses, **dict.fromkeys(rest, False)), critical=True)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _write(path: Path, content: bytes, secret: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Created with its final mode: a key must not be readable by others even for a moment.
    path.unlink(missing_ok=True)
    path.touch(mode=0o600 if secret else 0o644)
    path.write_bytes(content)
