"""Writing a federation: keys through the engine's own provisioning, and a small file and a page for everyone in it.

Keys are renewed, and taken back, where they were made.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fedns import __version__
from fedns.core.checked import sentence_of
from fedns.core.errors import ConfigError
from fedns.core.files import read_toml
from fedns.federation.config import CREDENTIALS_FOLDER, EXPERIMENT_FILE, SITE_FILE, engine_named
from fedns.federation.permissions import permit_table
from fedns.federation.protocol.transport import Engine
from fedns.runs.over_sites import ColumnRun, Policy

AUTHORITY_FOLDER, STUDY_FILE, README_FILE = "authority", "study.toml", "README.md"


def init_federation(folder: Path, engine: str, sites: Sequence[str], server: str, study: str = "") -> None:
    """A working folder for this engine; sites that are there already keep their keys and their files.

    server: host:port that sites connect to. study: the text of a study that everybody gets; without one the coordinator's
    file describes a method over columns as they are.
    """
    carrier = engine_named(engine)
    if not sites or len(set(sites)) < len(sites):
        raise ConfigError(f"a federation needs sites, each with its own name, got {', '.join(sites) or 'none'}")
    _refuse_others_files(folder)
    host, _, port = server.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"the server must be given as host:port, got '{server}'")
    (folder / AUTHORITY_FOLDER).mkdir(parents=True, exist_ok=True)  # by which a federation is known
    coordinator, credentials = carrier.provision(folder / AUTHORITY_FOLDER, sites, host, int(port))
    _place(coordinator, folder / "coordinator" / CREDENTIALS_FOLDER)
    listen, bare = f"{_listen(host)}:{port}", not study
    _write_new(folder / "coordinator" / EXPERIMENT_FILE, _experiment(engine, sites, listen, bare))
    look, run = (_LOOK_BARE, _RUN_BARE) if bare else (_LOOK, _RUN)
    for site in sites:
        _place(credentials[site], folder / "sites" / site / CREDENTIALS_FOLDER)
        _write_new(folder / "sites" / site / SITE_FILE, _site(engine, site, bare))
        extra = f"[{engine}]" if carrier.needs_more else ""
        page = _SITE_README.format(site=site, server=server, engine=engine, look=look, version=__version__, extra=extra)
        _write_new(folder / "sites" / site / README_FILE, page)
    if study:
        for owner in ("coordinator", *(f"sites/{site}" for site in sites)):
            _write_new(folder / owner / STUDY_FILE, study)
    _write_new(folder / README_FILE, _README.format(engine=engine, server=server, run=run))


def _refuse_others_files(folder: Path) -> None:
    """Keys go into a folder of their own, or into the federation that is there, be it half written."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"'{folder}' is a file: name a new folder for the federation")
    held = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    ours = (folder / AUTHORITY_FOLDER).is_dir() or (folder / "coordinator" / EXPERIMENT_FILE).is_file()
    if held and not ours:
        raise ConfigError(
            f"{folder} holds {held[-1]} and is no federation: private keys would lie among files of another kind; name an "
            "empty folder, or a new one"
        )


def _place(credentials: Path, target: Path) -> None:
    """Copy credentials to where their owner gets them, whole or not at all; those that are there are brought up to date."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        shutil.copytree(credentials, Path(scratch) / CREDENTIALS_FOLDER)
        if target.exists():
            target.rename(Path(scratch) / "old")
        (Path(scratch) / CREDENTIALS_FOLDER).rename(target)


def _listen(host: str) -> str:
    """Where the coordinator listens: on the loopback address if sites are told that, else on all of the machine's."""
    return "127.0.0.1" if host in ("localhost", "127.0.0.1", "[::1]") else "0.0.0.0"


def _write_new(path: Path, text: str) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


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
    return engine, sites, engine.contact(folder / "sites" / sites[0] / CREDENTIALS_FOLDER).address


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


_METHOD = f"""
method = "auto"         # {sentence_of(ColumnRun, "method")}
loss = "logistic"       # {sentence_of(ColumnRun, "loss")}
strength = 1e-3         # {sentence_of(ColumnRun, "strength")}
intercept = true
rounds = 100
gradient_tol = 1e-8
seed = 0
wire = "float64"
out = "run"
"""


def _experiment(engine: str, sites: Sequence[str], listen: str, bare: bool) -> str:
    names = ", ".join(f'"{site}"' for site in sites)
    return f"""engine = "{engine}"
sites = [{names}]
listen = "{listen}"
{_METHOD if bare else ""}
[policy]
absent = "wait"         # {sentence_of(Policy, "absent")}
quorum = {len(sites)}              # {sentence_of(Policy, "quorum")}
timeout_seconds = 60
patience_seconds = 600
"""


def _site(engine: str, site: str, bare: bool) -> str:
    files = "LIBSVM text, .npz, .csv or .parquet" if bare else ".csv, .parquet, .arrow or .feather"
    target = 'target = "target"       # the column to predict\n' if bare else ""
    return f"""name = "{site}"
engine = "{engine}"

[data]
dataset = "data.csv"    # {files}, from this folder
{target}
{permit_table()}"""


_RUN = "fedns fit coordinator/study.toml --federation ."
_RUN_BARE = "fedns coordinate coordinator/experiment.toml"
_LOOK = (
    "Read `study.toml`. In `site.toml`, name your table and look at what you permit; `fedns check study.toml YOUR_TABLE "
    "--site site.toml` says what the study sees in it and what would leave, and sends nothing."
)
_LOOK_BARE = "In `site.toml`, name your data and its target, and look at what you permit."

_README = """# A fedns federation on {engine}

| folder | goes to | holds |
|---|---|---|
| `authority/` | nobody: it stays with whoever runs the federation | the keys that vouch for everyone else's |
| `coordinator/` | the machine that sites connect to, {server} | its key, and `experiment.toml` |
| `sites/NAME/` | the administrator of that site, over a channel you trust | that site's key, and `site.toml` |

1. Send every folder under `sites/` to its administrator, who follows the `README.md` in it.
2. On the coordinator: `fedns doctor coordinator/experiment.toml`, which says what is not in order, then `{run}`.
   It waits for all sites, then trains.
3. Interrupted? The same with `--resume` goes on to the same result.

Another site: run `fedns init-federation` again with all names; keys that exist are kept.
A year later: `fedns renew`. A site that leaves, or a stolen key: `fedns revoke`, `fedns renew --site`.
"""

_SITE_README = """# Site {site}

This folder makes your machine a site of a federation on {engine}. Your rows stay on it.

1. Install, with Python 3.11 or newer, the version of `fedns` that the coordinator has, from the wheel that you were given:
   `pip install -c constraints.txt 'fedns-{version}-py3-none-any.whl{extra}'`.
2. {look}
3. Look it over: `fedns doctor site.toml`; each line is OK, FIX with what to do, or WAIT for
   what others do, such as starting the coordinator.
4. Start: `fedns site site.toml`. It connects out to {server}; nothing connects in, no port has to be opened here.

`credentials/` holds this site's private key: keep it to yourself. `state/ledger.jsonl` lists every message that left or
reached this site: its kind, its fields and their shapes, its bytes, and what it was for. Stop with Ctrl-C at any
time; started again, the site goes on where it was. A request outside what `site.toml` permits is refused, and the
coordinator is told why.
"""
