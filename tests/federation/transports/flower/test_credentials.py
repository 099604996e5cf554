"""Who is who in a Flower federation: what is provisioned, kept, made anew and refused."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the Flower engine needs flwr: pip install 'fedns[flower]'")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from fedns.core.errors import ConfigError
from fedns.federation.processes import EngineError
from fedns.federation.transports.flower.credentials import (
    AUTHORITY_YEARS,
    contact,
    provision,
)
from fedns.federation.transports.flower.server import open_engine

SERVER = Path("coordinator/server.crt")


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def changed(before: dict[str, bytes], folder: Path) -> set[str]:
    after = content(folder)
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def test_a_coordinator_knows_its_sites_by_their_keys(tmp_path: Path) -> None:
    made = provision(tmp_path, ["north", "south"], "example.org", 9000)
    known = contact(made.coordinator)
    assert known.known is not None and list(known.known) == ["north", "south"]
    for name, public in known.known.items():
        site = contact(made.sites[name])
        assert (site.name, site.address) == (name, "example.org:9000")
        assert site.authority.read_bytes() == known.authority.read_bytes()
        assert site.key is not None
        private = load_ssh_private_key(site.key.read_bytes(), password=None)
        assert isinstance(private, ec.EllipticCurvePrivateKey) and private.curve.name == "secp256r1"
        assert private.public_key() == load_pem_public_key(public.read_bytes())
    secret = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.stat().st_mode & 0o777 == 0o600}
    assert secret == {"authority.key", "coordinator/server.key", "sites/north/node.key", "sites/south/node.key"}


def test_certificates_say_what_they_are_for(tmp_path: Path) -> None:
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(days=3)
    provision(tmp_path, ["north"], "[::1]", 9000, valid_for=timedelta(days=5), starting=start)
    authority, server = certificate(tmp_path / "coordinator/authority.crt"), certificate(tmp_path / SERVER)
    server.verify_directly_issued_by(authority)
    authority.verify_directly_issued_by(authority)
    for one, signs, length in ((authority, True, 0), (server, False, None)):
        basic = one.extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = one.extensions.get_extension_for_class(x509.KeyUsage).value
        assert (basic.ca, basic.path_length, usage.key_cert_sign, usage.digital_signature) == (
            signs,
            length,
            signs,
            not signs,
        )
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["::1", "localhost", "127.0.0.1"]
    uses = server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert (server.not_valid_before_utc, server.not_valid_after_utc) == (start, start + timedelta(days=5))
    assert authority.not_valid_after_utc == start + timedelta(days=365 * AUTHORITY_YEARS)
    ssl.create_default_context(cafile=str(tmp_path / "coordinator/authority.crt"))


def test_what_is_there_is_kept_and_what_is_missing_is_made(tmp_path: Path) -> None:
    provision(tmp_path, ["north"], "example.org", 9000)
    before = content(tmp_path)
    provision(tmp_path, ["north"], "example.org", 9000)
    assert changed(before, tmp_path) == set()
    provision(tmp_path, ["south"], "example.org", 9000)
    assert changed(before, tmp_path) == {
        "coordinator/sites/south.pub", "sites/south/node.key", "sites/south/authority.crt", "sites/south/site.toml"
    }  # fmt: skip
    provision(tmp_path, ["north", "south"], "example.org", 9001)
    assert contact(tmp_path / "sites/north").address == "example.org:9001"
    (tmp_path / SERVER).unlink()
    before = content(tmp_path)
    provision(tmp_path, ["north", "south"], "example.org", 9001)
    assert changed(before, tmp_path) == {"coordinator/server.crt", "coordinator/server.key"}  # of the same authority
    certificate(tmp_path / SERVER).verify_directly_issued_by(certificate(tmp_path / "coordinator/authority.crt"))


@pytest.mark.parametrize("lost", ["authority.key", "coordinator/authority.crt"])
def test_an_authority_of_which_a_half_is_lost_is_made_anew(lost: str, tmp_path: Path) -> None:
    provision(tmp_path, ["north"], "example.org", 9000)
    before = content(tmp_path)
    (tmp_path / lost).unlink()
    (tmp_path / SERVER).unlink()
    provision(tmp_path, ["north"], "example.org", 9000)
    assert {"authority.key", "coordinator/authority.crt", "sites/north/authority.crt"} <= changed(before, tmp_path)
    certificate(tmp_path / SERVER).verify_directly_issued_by(certificate(tmp_path / "sites/north/authority.crt"))


def test_either_end_can_be_contacted_by_what_it_has(tmp_path: Path) -> None:
    provision(tmp_path, ["north"], "[::1]", 9000)
    site = contact(tmp_path / "sites" / "north")
    assert (site.host, site.port, site.certificates, site.presented, site.known) == ("::1", 9000, (), False, None)
    own = contact(tmp_path / "coordinator")
    assert (own.host, own.certificates, set(own.known or ())) == ("127.0.0.1", (tmp_path / SERVER,), {"north"})


def test_folders_that_are_none_and_federations_without_sites_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no credentials: it has neither server\.crt nor site\.toml; take coord"):
        contact(tmp_path)
    for text, words in (('site = "north"', "lacks server"), ("", "lacks server, site")):
        (tmp_path / "site.toml").write_text(text)
        with pytest.raises(ConfigError, match=words):
            contact(tmp_path)
    provision(tmp_path / "f", [], "example.org", 9000)
    with (
        pytest.raises(EngineError, match="the federation has no sites; provision some"),
        open_engine(tmp_path / "f" / "coordinator", "127.0.0.1:1", tmp_path),
    ):
        pass
