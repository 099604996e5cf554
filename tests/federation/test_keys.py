"""Renewing and revoking, tried on real sockets: who is let in afterwards, and who is not."""

import shutil
from contextlib import contextmanager

import pytest
from cryptography import x509
from tests.processes import wait_until

from fedns.core.errors import ConfigError
from fedns.federation.config import engine_named
from fedns.federation.processes import free_port
from fedns.federation.provision import init_federation, renew, revoke
from fedns.federation.reachable import days_left, why_unreachable


@pytest.fixture
def folder(engine, tmp_path):
    init_federation(tmp_path / "f", engine, ["north", "south"], f"localhost:{free_port()}")
    return tmp_path / "f"


@contextmanager
def running(engine, folder, logs):
    contact = engine_named(engine).contact(folder / "sites/north/credentials")
    with engine_named(engine).open(folder / "coordinator/credentials", f"127.0.0.1:{contact.port}", logs) as transport:
        yield transport


def why_kept_out(engine, credentials):
    """What keeps these credentials from being taken in by whoever listens now, if anything."""
    known = engine_named(engine)
    return why_unreachable(known.contact(credentials)) or (known.admits(credentials) if known.admits else "")


def certificate(engine, folder):
    (path,) = engine_named(engine).contact(folder / "coordinator/credentials").certificates
    return x509.load_pem_x509_certificate(path.read_bytes()), path


def test_renewing_makes_certificates_that_hold_for_longer(engine, folder):
    old, path = certificate(engine, folder)
    said = renew(folder)
    new, _ = certificate(engine, folder)
    assert new.serial_number != old.serial_number and new.not_valid_after_utc >= old.not_valid_after_utc
    assert days_left(path) > 350
    assert said.startswith("hand out again: coordinator/credentials")
    assert ("sites/north/credentials" in said) == (engine == "nvflare")  # whose sites have certificates that end, too


def test_what_cannot_be_is_said(engine, folder, tmp_path):
    with pytest.raises(ConfigError, match="is not where a federation was provisioned"):
        renew(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="has no site 'east': it has north, south"):
        renew(folder, "east")
    revoke(folder, "south")
    with pytest.raises(ConfigError, match="'north' cannot be shut out"):
        revoke(folder, "north")


@pytest.mark.slow
@pytest.mark.parametrize("action", [lambda f: renew(f, "south"), lambda f: revoke(f, "south")], ids=["renewed", "revoked"])
def test_an_old_key_is_refused_and_the_others_are_let_in(action, engine, folder, tmp_path):
    shutil.copytree(folder / "sites/south/credentials", tmp_path / "stolen")
    with running(engine, folder, tmp_path / "before"):
        wait_until(lambda: why_kept_out(engine, tmp_path / "stolen") == "", "the key is good", 0.5)
    action(folder)
    with running(engine, folder, tmp_path / "after"):
        wait_until(lambda: why_kept_out(engine, folder / "sites/north/credentials") == "", "north is let in", 0.5)
        assert why_kept_out(engine, tmp_path / "stolen") != ""
        if (folder / "sites/south/credentials").exists():  # renewed
            assert why_kept_out(engine, folder / "sites/south/credentials") == ""
