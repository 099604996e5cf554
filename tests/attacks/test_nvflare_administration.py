"""What a coordinator or a fellow site can make an NVFlare site or server do: real processes, doors open and closed."""

import contextlib
import importlib.util
import json
import time
from pathlib import Path

import pytest
from tests.processes import PATIENCE_SECONDS, wait_until

pytest.importorskip("nvflare", reason="nvflare is not installed")

from nvflare.private.fed.client import client_req_processors

from fedns.federation.processes import free_port
from fedns.federation.transports.nvflare import processes
from fedns.federation.transports.nvflare.processes import provision, start_site, stop
from fedns.federation.transports.nvflare.server import NVFlareTransport
from fedns.federation.transports.nvflare.traffic import REFUSAL

SITES = ["attacker", "closed", "open"]
SECRET = "age,label\n71,1\n"
JOB = "0f0a1b5e-6b5c-4a3e-9a55-2f8f2d1f7a10"
ENDS_THE_SITE = {"train.shutdown", "train.restart"}
NEEDED_BY_THE_SERVER = {("task", topic) for topic in ("challenge", "register", "quit", "heart_beat")}
STREAMS = "sm__STREAM"


def topics_of_every_processor() -> list[str]:
    """From a fresh copy of NVFlare's module: another test of this process may have emptied the list in the loaded one."""
    spec = importlib.util.spec_from_file_location(client_req_processors.__name__, client_req_processors.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [t for processor in module.ClientRequestProcessors.request_processors for t in processor.get_topics()]


TOPICS = topics_of_every_processor()


class Federation:
    """One server, open or closed, an attacker, a site as it is, and one with its doors open."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, server: str):
        self.folder = folder
        self.kits = provision(folder / "federation", SITES, "localhost", free_port())
        self.config = folder / "site.toml"
        self.config.touch()
        for kit in self.kits.sites.values():
            (kit.parent / "secret.csv").write_text(SECRET)
            run = self.run_folder(kit.name)
            run.mkdir()
            (run / "results.txt").write_text("kept")
        with patch.context() as on_the_server:
            on_the_server.setattr(processes, "SERVER_COMPONENT", server)
            self.transport = NVFlareTransport(self.kits.coordinator)
        self.processes = {"closed": self._start("closed")}
        patch.setattr(processes, "SITE_COMPONENT", "nvflare_attacker.OpenSite")
        self.processes |= {site: self._start(site) for site in ("attacker", "open")}
        wait_until(lambda: set(self.transport.connected()) == set(SITES), "all sites are connected")
        wait_until(lambda: all(map(self.is_administered, SITES)), "NVFlare's administration has started at all sites")

    def run_folder(self, site: str) -> Path:
        return self.kits.sites[site] / JOB

    def _start(self, site: str):
        return start_site(self.kits.sites[site], "nvflare_attacker:build", self.config)

    def ask(self, site: str, request: bytes) -> str:
        (arrival,) = self.transport.exchange({site: request}, 30)
        assert not arrival.failure, (site, arrival.failure)
        return bytes(arrival.payload).decode()

    def is_administered(self, site: str) -> bool:
        """Whether a site has finished to start: NVFlare opens its administration after it has registered the site."""
        return json.loads(self.ask(site, b"administered"))

    def attacks(self, sender: str, target: str, messages: list[tuple]) -> list[dict]:
        """Replies to messages, each of which is a way, a channel, a topic and a payload."""
        described = [[way, target, *message] for way, *message in messages]
        return json.loads(self.ask(sender, b"attack " + json.dumps(described).encode()))

    def attack(self, sender: str, target: str, channel: str, topic: str, payload: object = None, way: str = "core") -> dict:
        (reply,) = self.attacks(sender, target, [(way, channel, topic, payload)])
        return reply

    def administrate(self, sender: str, target: str, topic: str, **described: object) -> dict:
        described.setdefault("headers", {"job_id": JOB})
        return self.attack(sender, target, "admin", topic, {"admin": topic, **described})

    def close(self) -> None:
        self.transport.close()
        for process in self.processes.values():
            stop(process)


@contextlib.contextmanager
def running(tmp_path_factory, server: str):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        federation = Federation(tmp_path_factory.mktemp("nvflare"), patch, server)
        try:
            yield federation
        finally:
            federation.close()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A coordinator that passes on what it should not, and attacks by itself."""
    with running(tmp_path_factory, "nvflare_attacker.OpenServer") as federation:
        yield federation


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    with running(tmp_path_factory, processes.SERVER_COMPONENT) as federation:
        yield federation


def doors_of(federation: Federation, process: str) -> list[tuple[str, str]]:
    """The channels and topics of a process, less the carrier of streams."""
    doors = [tuple(door) for door in json.loads(federation.ask(process, b"registered"))]
    return [(channel, "x" if topic == "*" else topic) for channel, topic in doors if channel != STREAMS]


def assert_closed(federation: Federation, sender: str, target: str, doors: list[tuple[str, str]]) -> None:
    """Requests are refused in words; the frames of a stream, to which there is no reply, lead to nothing."""
    for door, reply in zip(
        doors, federation.attacks(sender, target, [("core", *door, None) for door in doors]), strict=True
    ):
        assert is_refused(reply), (door, reply)
    for door, reply in zip(
        doors, federation.attacks(sender, target, [("stream", *door, None) for door in doors]), strict=True
    ):
        assert reply["code"] != "ok" and reply["body"] == "None", (door, reply)


def is_refused(reply: dict) -> bool:
    return reply["error"] == REFUSAL and reply["body"] == "None"


@pytest.mark.parametrize("sender", ["server", "attacker"])
def test_an_open_site_obeys_anyone(hostile, sender):
    """The attack itself: what these requests do where nothing stops them."""
    assert hostile.administrate(sender, "open", "sys.shell", body="cat ../secret.csv")["body"] == SECRET
    assert "client.key" in hostile.administrate(sender, "open", "sys.shell", body="ls startup")["body"]
    for topic in set(TOPICS) - ENDS_THE_SITE - {"train.delete_run"}:
        reply = hostile.administrate(sender, "open", topic)
        assert reply["code"] == "ok" and reply["body"] != "invalid_request", (topic, reply)
    hostile.administrate(sender, "open", "train.delete_run")
    assert not hostile.run_folder("open").exists()
    assert "fedns" in hostile.attack(sender, "open", "_net_manager", "process_info")["body"]
    hostile.run_folder("open").mkdir()
    hostile.attack(sender, "open", "admin", "x", {"admin": "train.delete_run", "headers": {"job_id": JOB}}, way="bulk")
    wait_until(lambda: not hostile.run_folder("open").exists(), "the run's folder is deleted")


@pytest.mark.parametrize("sender", ["server", "attacker"])
@pytest.mark.parametrize("topic", TOPICS)
def test_a_site_obeys_nobody(hostile, sender, topic):
    commands = (
        ["cat ../secret.csv", "ls ..", "pwd", "head data.csv", "grep 1 ../secret.csv"] if topic == "sys.shell" else [""]
    )
    for command in commands:
        assert is_refused(hostile.administrate(sender, "closed", topic, body=command))


@pytest.mark.parametrize("sender", ["server", "attacker"])
def test_a_site_has_no_other_door(hostile, sender):
    """Whatever is registered in an NVFlare client, by request, by stream and in bulk: only fedns's own stream is taken."""
    doors = doors_of(hostile, "open")
    assert {"admin", "aux_communication", "_net_manager", "cellnet.channel", "server_command", "fedns"} <= {
        c for c, _ in doors
    }
    assert_closed(hostile, sender, "closed", [door for door in doors if door != ("fedns", "ask")])
    if sender == "attacker":
        assert_closed(hostile, sender, "closed", [("fedns", "ask")])
    hostile.attacks(sender, "closed", [("bulk", *door, None) for door in doors])
    delete = {"admin": "train.delete_run", "headers": {"job_id": JOB}}
    hostile.attack(sender, "closed", "admin", "x", delete, way="bulk")
    for topic in ("sm__DATA", "sm__ACK", "sm__ERROR", "sm__CERT"):  # frames outside any stream
        if sender == "attacker" or topic == "sm__CERT":
            assert is_refused(hostile.attack(sender, "closed", STREAMS, topic)), topic
    time.sleep(1.0)
    assert (hostile.run_folder("closed") / "results.txt").read_text() == "kept"


def test_nothing_was_read_or_deleted_and_the_site_answers(hostile):
    assert (hostile.kits.sites["closed"].parent / "secret.csv").read_text() == SECRET
    assert (hostile.run_folder("closed") / "results.txt").exists()
    assert hostile.processes["closed"].poll() is None
    assert hostile.ask("closed", b"still here") == "ereh llits"


def test_a_site_listens_on_no_port(hostile):
    assert not ports_of(hostile.processes["closed"].pid)
    assert ports_of(hostile.processes["open"].pid)  # NVFlare's own way, so that the check can tell


def test_a_server_passes_nothing_on(honest):
    reply = honest.administrate("attacker", "open", "sys.shell", body="cat ../secret.csv")
    assert is_refused(reply)
    messages = [("core", "admin", topic, {"admin": topic}) for topic in TOPICS]
    assert all(is_refused(reply) for reply in honest.attacks("attacker", "open", messages))
    bulk = {"admin": "train.delete_run", "headers": {"job_id": JOB}}
    honest.attack("attacker", "open", "admin", "x", bulk, way="bulk")
    stream = honest.attack("attacker", "open", "fedns", "ask", way="stream")
    assert stream["code"] != "ok" and stream["body"] == "None"
    time.sleep(1.0)
    assert (honest.run_folder("open") / "results.txt").read_text() == "kept"
    assert honest.ask("open", b"still here") == "ereh llits"


def test_a_server_answers_sites_that_register_and_nothing_else(hostile, honest):
    doors = doors_of(hostile, "server")
    assert {"hci_channel", "_net_manager", "server_parent_listener", "task"} <= {channel for channel, _ in doors}
    assert hostile.attack("attacker", "server", "_net_manager", "config_vars")["code"] == "ok"
    assert_closed(honest, "attacker", "server", [door for door in doors if door not in NEEDED_BY_THE_SERVER])
    assert honest.ask("closed", b"still here") == "ereh llits"


def test_a_server_listens_on_its_one_port(honest):
    assert len(ports_of(honest.transport._process.pid)) == 1


def ports_of(process: int) -> set[int]:
    """The TCP ports that a process listens on."""
    sockets = set()
    for link in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(str(link.readlink()))
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                ports.add(int(words[1].rsplit(":", 1)[1], 16))
    return ports


def test_an_open_site_is_stopped_by_anyone(hostile):
    """Last, since it ends what the other tests need."""
    hostile.administrate("attacker", "open", "train.shutdown")
    assert hostile.processes["open"].wait(PATIENCE_SECONDS) is not None
    assert hostile.processes["closed"].poll() is None
