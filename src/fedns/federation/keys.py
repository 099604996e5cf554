"""Renewing what proves who somebody is, and taking it back; both where the federation was provisioned."""

from __future__ import annotations

from pathlib import Path

from fedns.core.errors import ConfigError
from fedns.core.files import read_toml
from fedns.federation.config import CREDENTIALS_FOLDER, EXPERIMENT_FILE, engine_named
from fedns.federation.protocol.transport import Engine
from fedns.federation.provision import AUTHORITY_FOLDER, init_federation


def renew(folder: Path, site: str | None = None) -> str:
    """New certificates for all that has some, or a new key for one site; what to hand out now, in a sentence."""
    engine, sites, server = _provisioned(folder)
    if site is not None and site not in sites:
        raise ConfigError(f"{folder} has no site '{site}': it has {', '.join(sites)}")
    changed = _made_anew(folder, engine, sites, server, site)
    return f"hand out again: {', '.join(changed)}; then start those who got them again"


def revoke(folder: Path, site: str) -> str:
    """Shut a site out; what to hand out now, in a sentence."""
    engine, sites, server = _provisioned(folder)
    others = [name for name in sites if name != site]
    if site not in sites or not others:
        raise ConfigError(f"'{site}' cannot be shut out of {folder}, whose sites are {', '.join(sites)}")
    changed = _made_anew(folder, engine, others, server, site)
    (folder / "sites" / site / CREDENTIALS_FOLDER).rename(folder / "sites" / site / f"{CREDENTIALS_FOLDER}.revoked")
    handed = f"hand out again: {', '.join(changed)}"
    return f"{handed}; take '{site}' out of `sites` in {EXPERIMENT_FILE}, then start the coordinator again"


def _provisioned(folder: Path) -> tuple[Engine, list[str], str]:
    """The engine, the sites and the server's address of a federation folder."""
    file = folder / "coordinator" / EXPERIMENT_FILE
    if not file.is_file() or not (folder / AUTHORITY_FOLDER).is_dir():
        raise ConfigError(
            f"{folder} is not where a federation was provisioned: it lacks {AUTHORITY_FOLDER}/ or coordinator/"
        )
    engine = engine_named(read_toml(file)["engine"])
    sites = sorted(path.parent.name for path in (folder / "sites").glob(f"*/{CREDENTIALS_FOLDER}"))
    if engine.contact is None or engine.forget is None or not sites:
        raise ConfigError(f"the engine {engine.name} cannot renew keys, or {folder} has no sites")
    contact = engine.contact(folder / "sites" / sites[0] / CREDENTIALS_FOLDER)
    host = f"[{contact.host}]" if ":" in contact.host else contact.host
    return engine, sites, f"{host}:{contact.port}"


def _made_anew(folder: Path, engine: Engine, sites: list[str], server: str, site: str | None) -> list[str]:
    """Provision again without what is to go; the folders of credentials that are no longer the same."""
    everyone = ["coordinator", *(f"sites/{name}" for name in sites)]
    before = {name: _content(folder / name / CREDENTIALS_FOLDER) for name in everyone}
    assert engine.forget is not None
    engine.forget(folder / AUTHORITY_FOLDER, site)
    init_federation(folder, engine.name, sites, server)
    after = {name: _content(folder / name / CREDENTIALS_FOLDER) for name in everyone}
    return [f"{name}/{CREDENTIALS_FOLDER}" for name in everyone if before[name] != after[name]]


def _content(folder: Path) -> dict[str, bytes]:
    proofs = (".crt", ".pem", ".key", ".pub")
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.suffix in proofs}
