"""NVFlare's side of things as folders and child processes: provision a federation, start its server, keep a site running.

    fedns coordinate (NVFlareTransport)                   fedns site (keep_site_running)
      └─ NVFlare server process, with `Relay` loaded        └─ NVFlare client process, with `SiteAnswers` loaded

No NVFlare job is submitted. Server and client load one component of ours from `local/resources.json`, the file NVFlare
gives the owner of credentials for that purpose, and talk over the connection between them. So there are no job processes to
start or to leave behind, nothing polls, and a site that is started again can be asked again as soon as it has registered.
The resource files list nothing else: these credentials cannot deploy or run jobs.

A child process lives as long as the end of the pipe or socket that its parent holds: it also goes when the parent is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

from fedns.core.errors import ConfigError
from fedns.core.files import checked_name
from fedns.federation.processes import FRUGAL, LARGEST_MESSAGE, EngineError, Service, end_group
from fedns.federation.protocol.transport import Provisioned
from fedns.federation.reachable import Contact
from fedns.federation.transports.nvflare.logs import OWNER, log_settings

PROJECT = "fedns"
MOST_SITES = 10_000
CONSOLE = "console.txt"  # beside the credentials: what the process printed, NVFlare's own log files beside it
AUTHORITY_YEARS = 10
REFUSED = 78  # exit status of a site (EX_CONFIG) that says why starting it again would not help
REASON = "fedns ends: "  # before it
HEARTBEAT_SECONDS = 2  # how soon a site that was there before its coordinator is known to it
UNHEARD_SECONDS = 10.0  # after which a heartbeat is sent again: one that was under way when a server ended is never answered
LISTEN_SECONDS = 600.0  # after which the server forgets a site that it has not heard of
GIVE_UP_SECONDS = 5.0  # a process that was stopped politely and is still there after this is killed

PROGRESS_SECONDS = 120.0  # a message of which nothing has arrived for so long is given up
LARGEST_FRAME = 16 << 20  # bytes of one gRPC message
PIECE = 256 << 10  # bytes: what is longer is cut; NVFlare takes a buffer of this size for every message, however short

SITE_COMPONENT = "fedns.federation.transports.nvflare.client.SiteAnswers"
SERVER_COMPONENT = "fedns.federation.transports.nvflare.server.Relay"


def provision(folder: Path, sites: Sequence[str], server_address: str, port: int) -> Provisioned:
    """Make the credentials of a server and its sites (NVFlare: startup kits): each a folder for one machine, with its key.

    Called again with more sites, it keeps the old certificates.
    `folder` holds the key that signs certificates: it stays with whoever runs the federation, and goes to no site.
    """
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.entity import Project
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.impl.signature import SignatureBuilder
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner

    if not sites or len(set(sites)) != len(sites):
        raise ConfigError(f"a federation needs at least one site, each with its own name, got {list(sites)}")
    for site in sites:
        checked_name("a site's name", site)
        # NVFlare calls the server's end `server` and writes paths of such names with dots; it would accept these as names.
        if site in ("server", server_address) or "." in site:
            raise ConfigError(f"a site cannot be called {site!r}: the server is, or it has a dot; choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    # gRPC, and not NVFlare's plain TCP: that one shakes hands while accepting, so a silent visitor would keep everyone out.
    builders = [
        WorkspaceBuilder(),
        StaticFileBuilder(config_folder="config", scheme="grpc"),
        CertBuilder(root_valid_days=365 * AUTHORITY_YEARS),  # a new authority would mean new credentials for everyone
        SignatureBuilder(),
    ]
    log = _Notes()
    try:
        project = Project(PROJECT, "")
        # The administration port is the same port: nobody is given an administrator's certificate.
        project.set_server(server_address, PROJECT, {"fed_learn_port": port, "admin_port": port})
        for site in sites:
            project.add_client(site, PROJECT, {})
        with contextlib.redirect_stdout(sys.stderr):
            context = Provisioner(str(folder), builders).provision(project, logger=log)
    except ValueError as error:
        raise ConfigError(f"NVFlare cannot provision this federation: {error}") from error
    if context.get(CtxKey.BUILD_ERROR):
        raise ConfigError(f"NVFlare cannot provision this federation: {'; '.join(log.errors)}")
    credentials = Path(context[CtxKey.CURRENT_PROD_DIR])
    return Provisioned(credentials / server_address, {site: credentials / site for site in sites})


def forget(folder: Path, site: str | None) -> None:
    """Put all of it aside: NVFlare lets in whoever its authority has signed, so only a new authority takes a key back."""
    number = 1
    while (old := folder.with_name(f"{folder.name}.old-{number}")).exists():
        number += 1
    folder.rename(old)


class _Notes:
    """What NVFlare's provisioner would have printed; only errors are kept."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def error(self, text: str) -> None:
        self.errors.append(text)

    def info(self, text: str) -> None:
        pass

    debug = warning = info


def contact(credentials: Path) -> Contact:
    """Where the coordinator is, and by what both ends are known, from the credentials of either."""
    startup = credentials / "startup"
    role = "client" if (startup / "fed_client.json").is_file() else "server"
    if not (startup / f"fed_{role}.json").is_file():
        raise ConfigError(
            f"{credentials} holds no credentials: it has no folder `startup`; `fedns init-federation` makes one"
        )
    settings = json.loads((startup / f"fed_{role}.json").read_text(encoding="utf-8"))
    host, _, port = settings["servers"][0]["service"]["target"].rpartition(":")
    own = startup / f"{role}.crt"
    return Contact(host, int(port), startup / "rootCA.pem", (own,), startup / f"{role}.key", presented=role == "client")


def start_server(credentials: Path, channel: int, host: str = "") -> subprocess.Popen[bytes]:
    """The NVFlare server of these credentials, with the relay talking over the inherited socket `channel`."""
    component = {"id": "fedns", "path": SERVER_COMPONENT, "args": {"channel": channel, "host": host}}
    settings = {"max_num_clients": MOST_SITES, "heart_beat_timeout": LISTEN_SECONDS, "admin_storage": "transfer"}
    _configure(credentials, {"servers": [settings], "components": [component]})
    arguments = ["nvflare.private.fed.app.server.server_train", "-m", ".", "-s", "fed_server.json"]
    return _start(
        credentials, [*arguments, "--set", "secure_train=true", f"org={PROJECT}", "config_folder=config"], pass_fds=[channel]
    )


def start_site(credentials: Path, service: str, config: Path) -> subprocess.Popen[bytes]:
    """The NVFlare client of these credentials; `service` is `package.module:function`, as `load_service` takes it."""
    arguments = {"service": service, "config": str(config.absolute())}
    component = {"id": "fedns", "path": SITE_COMPONENT, "args": arguments}
    _configure(credentials, {"client": {"maint_msg_timeout": UNHEARD_SECONDS}, "components": [component]})
    name = json.loads((credentials / "startup" / "fed_client.json").read_text(encoding="utf-8"))["client"]["fqsn"]
    command = ["nvflare.private.fed.app.client.client_train", "-m", ".", "-s", "fed_client.json", "--set"]
    command += ["secure_train=true", f"uid={name}", f"org={PROJECT}", "config_folder=config"]
    command += [f"heart_beat_interval={HEARTBEAT_SECONDS}"]
    owner = os.dup(sys.stderr.fileno()) if _is_real(sys.stderr) else os.open(os.devnull, os.O_WRONLY)
    try:
        return _start(credentials, command, {OWNER: str(owner)}, stdin=subprocess.PIPE, pass_fds=[owner])
    finally:
        os.close(owner)


def serve_rows(credentials: Path, service: Callable[[Path], Service], config: Path) -> None:
    """Answer with what service makes of the configuration, in a process that finds it by its name."""
    keep_site_running(credentials, f"{service.__module__}:{service.__qualname__}", config)


def keep_site_running(credentials: Path, service: str, config: Path) -> None:
    """Run the site's client, starting it again when it ends, until Ctrl-C or SIGTERM: which then do as they do elsewhere."""
    wait_seconds = 1.0
    with _stop_requested() as stopping:
        while not stopping.is_set():
            process, started = start_site(credentials, service, config), time.monotonic()
            while process.poll() is None and not stopping.wait(0.2):
                pass
            stop(process)
            if stopping.is_set():
                break
            if process.returncode == REFUSED:
                raise EngineError(last_line(credentials, REASON))
            wait_seconds = 1.0 if time.monotonic() - started > 60 else min(2 * wait_seconds, 60.0)
            said = f"the NVFlare client ended with status {process.returncode}, see {credentials / CONSOLE}"
            print(f"{said}; it is started again in {wait_seconds:g} s", flush=True)
            stopping.wait(wait_seconds)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process started here and whatever it started, politely if it listens."""
    end_group(process, GIVE_UP_SECONDS)
    if process.stdin is not None:
        process.stdin.close()


def last_line(credentials: Path, beginning: str = "") -> str:
    """The last thing that the process of these credentials said, of what begins so."""
    console = credentials / CONSOLE
    said = console.read_text(encoding="utf-8", errors="replace").splitlines() if console.exists() else []
    found = [line.removeprefix(beginning).strip() for line in said if line.startswith(beginning) and line.strip()]
    return found[-1] if found else f"nothing was printed, see the logs in {credentials}"


def _configure(credentials: Path, resources: dict[str, Any]) -> None:
    if not (credentials / "startup").is_dir():
        raise ConfigError(f"{credentials} holds no credentials: it has no folder `startup`; `provision` makes one")
    local = credentials / "local"
    local.mkdir(exist_ok=True)
    (local / "resources.json").write_text(json.dumps({"format_version": 2, **resources}, indent=2), encoding="utf-8")
    (local / "comm_config.json").write_text(json.dumps(_communication(), indent=2), encoding="utf-8")
    (local / "log_config.json").write_text(json.dumps(log_settings(), indent=2), encoding="utf-8")


def _communication() -> dict[str, Any]:
    lengths = [["grpc.max_receive_message_length", LARGEST_FRAME], ["grpc.max_send_message_length", LARGEST_FRAME]]
    return {
        "allow_adhoc_conns": False,
        "streaming_max_blob_size": LARGEST_MESSAGE,
        "streaming_chunk_size": PIECE,
        "streaming_ack_progress_timeout": PROGRESS_SECONDS,
        "grpc": {"options": lengths},
    }


def _is_real(stream: Any) -> bool:
    """Whether it is a file of the operating system's, which a child can be given."""
    try:
        return bool(stream.fileno() >= 0)
    except (AttributeError, OSError, ValueError):
        return False


def _start(
    credentials: Path, module_and_arguments: list[str], told: Mapping[str, str] = MappingProxyType({}), **options: Any
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-u", "-m", *module_and_arguments]
    # Why a visitor was refused stands in the console only if gRPC may speak; other libraries silence it for all children.
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    environment |= FRUGAL | dict(told)
    with (credentials / CONSOLE).open("wb") as console:
        # Its own group: Ctrl-C reaches us alone, and `stop` reaches everything that was started.
        return subprocess.Popen(
            command, cwd=credentials, env=environment, stdout=console, stderr=console, start_new_session=True, **options
        )


@contextlib.contextmanager
def _stop_requested() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; an exception in their place could hit while a process is being started.

    Once the block is over they have the effect that they have without it.
    """
    stopping = threading.Event()
    caught: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        caught.append(number)
        stopping.set()

    # Only the main thread can handle signals.
    main = threading.current_thread() is threading.main_thread()
    signals = [signal.SIGINT, signal.SIGTERM] if main else []
    before = {number: signal.signal(number, note) for number in signals}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        signal.raise_signal(caught[0])
