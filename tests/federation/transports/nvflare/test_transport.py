"""Real NVFlare processes on loopback, with mutual TLS."""

import contextlib
import datetime
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from tests.federation.transports.clock import Clock
from tests.processes import PATIENCE_SECONDS, wait_until

pytest.importorskip("nvflare", reason="nvflare is not installed")

from benchmarks.wire import Quality, Wire
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.message import Message

from fedns.core.errors import ConfigError
from fedns.federation.processes import free_port
from fedns.federation.transports.nvflare import processes, server
from fedns.federation.transports.nvflare.client import EXCHANGE, SESSION, SiteAnswers
from fedns.federation.transports.nvflare.processes import CONSOLE, provision, start_site, stop
from fedns.federation.transports.nvflare.server import NVFlareTransport

SITES = ["ankara", "bergen", "cusco"]
SERVICE = "echo_for_nvflare:build"
ECHO = """
import time
from pathlib import Path
def build(config):
    if not config.exists():
        raise FileNotFoundError(f"there is no {config.name}")
    def answer(request):
        if request == b"fail":
            raise ValueError("a secret number")
        if request.startswith(b"sleep"):
            time.sleep(float(request[5:]))
        if request.startswith(b"repeat"):
            return bytes(int(request[6:]))
        if request.startswith(b"await "):
            while not Path(request[6:].decode()).exists():
                time.sleep(0.02)
        return request[::-1]
    return answer
"""


class Running:
    """A server and three sites, with one stranger who claims to be a fourth."""

    def __init__(self, folder: Path):
        self.folder, self.port = folder, free_port()
        self.credentials = provision(folder / "federation", SITES, "localhost", self.port)
        self.config = folder / "site.toml"
        self.config.touch()
        self.transport = NVFlareTransport(self.credentials.coordinator)
        self.sites = {
            site: start_site(credentials, SERVICE, self.config) for site, credentials in self.credentials.sites.items()
        }
        self.stranger = start_site(self._credentials_under_another_name(), SERVICE, self.config)
        self.wait_for(SITES)

    def _credentials_under_another_name(self) -> Path:
        credentials = self.folder / "stranger"
        shutil.copytree(self.credentials.sites["ankara"], credentials)
        startup = credentials / "startup" / "fed_client.json"
        settings = json.loads(startup.read_text())
        settings["client"]["fqsn"] = "stranger"
        startup.write_text(json.dumps(settings))
        return credentials

    def wait_for(self, sites: list[str]) -> None:
        wait_until(lambda: set(sites) <= set(self.transport.connected()), f"{', '.join(sites)} are connected")

    def ask(self, requests: dict[str, bytes], seconds: float = PATIENCE_SECONDS):
        return {arrival.site: arrival for arrival in self.transport.exchange(requests, seconds)}

    def close(self) -> None:
        self.transport.close()
        for process in [*self.sites.values(), self.stranger]:
            stop(process)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvflare")
    (folder / "echo_for_nvflare.py").write_text(ECHO)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
        running = Running(folder)
        yield running
        running.close()
        groups = [process.pid for process in [*running.sites.values(), running.stranger]]
        wait_until(lambda: not any(alive(group) for group in groups), "all processes have ended")


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def held(process: int) -> tuple[int, int]:
    """Threads and resident megabytes."""
    values = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return int(values["Threads"]), int(values["VmRSS"].split()[0]) // 1000


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="what a process holds is read from /proc")
def test_long_answers_are_not_kept(running):
    def ask(times: int) -> list[tuple[int, int]]:
        """The most that the server and a site hold after so many answers of eight megabytes."""
        for _ in range(times):
            assert all(
                len(arrival.payload) == 8_000_000 for arrival in running.ask(dict.fromkeys(SITES, b"repeat8000000")).values()
            )
        return [held(process) for process in (running.transport._process.pid, running.sites["ankara"].pid)]

    for before, after in zip(ask(5), ask(15), strict=True):  # which are 120 and 360 megabytes of all three
        assert after[0] <= before[0] + 10 and after[1] <= before[1] + 60, (before, after)


def test_answers_are_given_on_as_they_arrive(running, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    requests = {"ankara": b"await " + bytes(second), "bergen": b"at once", "cusco": b"await " + bytes(first)}
    order = []
    for arrival in running.transport.exchange(requests, PATIENCE_SECONDS):
        order.append(arrival.site)
        assert arrival.payload == requests[arrival.site][::-1] and not arrival.failure
        (first if len(order) == 1 else second).touch()
    assert order == ["bergen", "cusco", "ankara"]


def test_large_and_empty_payloads(running):
    for payload in (os.urandom(20_000_000), b""):
        arrivals = running.ask(dict.fromkeys(SITES, payload))
        assert all(arrival.payload == payload[::-1] and not arrival.failure for arrival in arrivals.values())


def test_a_failing_service_is_named_without_its_text(running):
    arrivals = running.ask({"ankara": b"fail", "bergen": b"fine"})
    assert arrivals["ankara"].failure == "its service failed with ValueError"
    assert arrivals["bergen"].payload == b"enif"


def test_a_site_nobody_knows_is_not_connected(running):
    assert running.ask({"delhi": b"?"})["delhi"].failure.startswith("it is not connected")


def test_a_stopped_site_misses_the_timeout_and_answers_again_later(running, monkeypatch):
    monkeypatch.setattr(server, "time", clock := Clock())
    os.kill(running.sites["bergen"].pid, signal.SIGSTOP)
    arrivals = {}
    for arrival in running.transport.exchange(dict.fromkeys(SITES, b"one"), PATIENCE_SECONDS):
        arrivals[arrival.site] = arrival
        if len(arrivals) == 2:
            clock.skip(PATIENCE_SECONDS)
    assert arrivals["bergen"].failure == f"no answer within {PATIENCE_SECONDS:g} s"
    assert arrivals["ankara"].payload == arrivals["cusco"].payload == b"eno"
    os.kill(running.sites["bergen"].pid, signal.SIGCONT)
    arrivals = running.ask(dict.fromkeys(SITES, b"two"))
    assert {arrival.payload for arrival in arrivals.values()} == {b"owt"}  # and not the late answer to the first


def test_killed_sites_fail_alone_and_answer_again_once_restarted(running):
    def kill(site: str) -> None:
        os.kill(running.sites[site].pid, signal.SIGKILL)
        stop(running.sites[site])

    def start(site: str) -> None:
        running.sites[site] = start_site(running.credentials.sites[site], SERVICE, running.config)

    arrivals, requests = {}, {"ankara": b"one", "bergen": b"sleep600", "cusco": b"sleep600"}
    for arrival in running.transport.exchange(requests, PATIENCE_SECONDS):
        arrivals[arrival.site] = arrival
        if arrival.site == "ankara":
            kill("bergen")
            kill("cusco")
            start("cusco")  # may be back before anybody noticed that it was gone
    assert arrivals["ankara"].payload == b"eno"
    assert arrivals["bergen"].failure == arrivals["cusco"].failure == "the connection to it was lost"
    assert "bergen" not in running.transport.connected()
    start("bergen")
    running.wait_for(SITES)
    assert {arrival.payload for arrival in running.ask(dict.fromkeys(SITES, b"two")).values()} == {b"owt"}


def credentials(running, folder: Path, kind: str) -> tuple[Path, Path] | None:
    own = running.credentials.sites["ankara"] / "startup"
    if kind == "valid":
        return own / "client.crt", own / "client.key"
    if kind == "none":
        return None
    if kind == "another authority":
        other = provision(folder / "other", SITES, "localhost", running.port).sites["ankara"] / "startup"
        return other / "client.crt", other / "client.key"
    valid = x509.load_pem_x509_certificate((own / "client.crt").read_bytes())
    state = json.loads((running.folder / "federation" / "fedns" / "state" / "cert.json").read_text())
    authority = serialization.load_pem_private_key(state["root_pri_key"].encode(), None)
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1 if kind == "renewed" else -1)
    builder = x509.CertificateBuilder(valid.issuer, valid.subject, valid.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(end - datetime.timedelta(days=9)).not_valid_after(end)
    for extension in valid.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    certificate = folder / f"{kind}.crt"
    certificate.write_bytes(builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return certificate, own / "client.key"


def visitor(running, pair: tuple[Path, Path] | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=running.credentials.coordinator / "startup" / "rootCA.pem")
    context.set_alpn_protocols(["h2"])
    if pair is not None:
        context.load_cert_chain(*pair)
    return context


def greeting(running, context: ssl.SSLContext | None) -> bytes:
    """What the server says to a visitor who begins to speak HTTP/2, the protocol of its port; nothing if it refuses."""
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    with socket.create_connection(("127.0.0.1", running.port), timeout=60) as plain:
        stream = plain if context is None else context.wrap_socket(plain, server_hostname="localhost")
        with stream:
            stream.sendall(hello)
            return stream.recv(1)


@pytest.mark.parametrize("kind", ["valid", "renewed"])
def test_certificates_of_the_federation_get_in(running, tmp_path, kind):
    assert greeting(running, visitor(running, credentials(running, tmp_path, kind)))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("none", "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        ("another authority", "unable to get local issuer certificate"),
        ("expired", "certificate has expired"),
    ],
)
def test_other_certificates_do_not(running, tmp_path, kind, reason):
    with contextlib.suppress(ssl.SSLError, ConnectionResetError):
        assert greeting(running, visitor(running, credentials(running, tmp_path, kind))) == b""
    wait_until(lambda: reason in (running.credentials.coordinator / CONSOLE).read_text(), f"the server's log says: {reason}")


def test_plaintext_gets_nothing(running):
    with contextlib.suppress(ConnectionResetError):
        assert greeting(running, None) == b""


def test_a_silent_visitor_keeps_nobody_out(running):
    with socket.create_connection(("127.0.0.1", running.port)):
        assert greeting(running, visitor(running, credentials(running, running.folder, "valid")))


def test_a_site_cannot_take_another_name(running):
    refusal = "authenticated as 'ankara' but claimed endpoint 'stranger' requires identity 'stranger'"
    wait_until(
        lambda: refusal in (running.credentials.coordinator / CONSOLE).read_text(), f"the server's log says: {refusal}"
    )
    assert "stranger" not in running.transport.connected()


def test_sites_outlive_their_coordinator(running):
    running.transport.close()
    running.transport = NVFlareTransport(running.credentials.coordinator)
    running.wait_for(SITES)
    assert {arrival.payload for arrival in running.ask(dict.fromkeys(SITES, b"again")).values()} == {b"niaga"}


@pytest.fixture(scope="module")
def slow_line(running, tmp_path_factory):
    """A server with one site behind a wire, of a quality that each test chooses."""
    port = free_port()
    credentials = provision(tmp_path_factory.mktemp("slow") / "federation", ["ankara"], "localhost", port)
    with Wire(port) as wire:
        startup = credentials.sites["ankara"] / "startup" / "fed_client.json"
        startup.write_text(startup.read_text().replace(f":{port}", f":{wire.port}"))
        transport = NVFlareTransport(credentials.coordinator)
        site = start_site(credentials.sites["ankara"], SERVICE, running.config)
        try:
            wait_until(lambda: transport.connected() == ["ankara"], "ankara is connected")
            yield transport, wire
        finally:
            transport.close()
            stop(site)


@pytest.mark.slow
def test_an_answer_may_take_its_time_and_is_sent_once(slow_line):
    transport, wire = slow_line
    wire.quality = Quality(bytes_per_second=400_000)
    started, before = time.monotonic(), wire.carried
    (arrival,) = transport.exchange({"ankara": b"repeat 3000000"}, PATIENCE_SECONDS)
    assert len(arrival.payload) == 3_000_000 and time.monotonic() - started > 7.0
    # What was sent twice would be carried before the next answer.
    (arrival,) = transport.exchange({"ankara": b"repeat 4"}, PATIENCE_SECONDS)
    assert len(arrival.payload) == 4 and wire.carried - before < 4_000_000


@pytest.mark.slow
def test_what_was_lost_with_a_connection_is_said_to_be_at_once(slow_line):
    transport, wire = slow_line
    wire.quality, before = Quality(bytes_per_second=100_000), wire.carried

    def break_off() -> None:
        wait_until(lambda: wire.carried - before > 200_000, "a part of the answer is there")  # which takes 30 s
        wire.break_off()

    breaking = threading.Thread(target=break_off)
    breaking.start()
    (arrival,) = transport.exchange({"ankara": b"repeat 3000000"}, 10 * PATIENCE_SECONDS)
    breaking.join()
    assert arrival.failure == "the connection to it was lost"
    wire.quality = Quality()
    wait_until(lambda: transport.connected() == ["ankara"], "ankara is back")
    (arrival,) = transport.exchange({"ankara": b"again"}, PATIENCE_SECONDS)
    assert arrival.payload == b"niaga"


def test_an_answer_that_is_too_long_is_not_received(running, tmp_path, monkeypatch):
    kits = provision(tmp_path / "federation", ["ankara"], "localhost", free_port())
    with monkeypatch.context() as small:
        small.setattr(processes, "LARGEST_MESSAGE", 1_000_000)
        transport = NVFlareTransport(kits.coordinator)
    site = start_site(kits.sites["ankara"], SERVICE, running.config)
    try:
        wait_until(lambda: transport.connected() == ["ankara"], "ankara is connected")
        (arrival,) = transport.exchange({"ankara": b"repeat 2000000"}, 5)
        assert arrival.failure and not arrival.payload
        (arrival,) = transport.exchange({"ankara": b"repeat 900000"}, PATIENCE_SECONDS)
        assert len(arrival.payload) == 900_000
    finally:
        transport.close()
        stop(site)


def test_children_of_a_killed_coordinator_end(running, tmp_path):
    credentials = provision(tmp_path / "federation", ["ankara"], "localhost", free_port())
    code = """
        import sys, time
        from pathlib import Path
        from fedns.federation.transports.nvflare.processes import start_site
        from fedns.federation.transports.nvflare.server import NVFlareTransport
        site = start_site(Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
        transport = NVFlareTransport(Path(sys.argv[1]))
        print(site.pid, transport._process.pid, flush=True)
        time.sleep(600)
    """
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(code),
        credentials.coordinator,
        credentials.sites["ankara"],
        SERVICE,
        running.config,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        groups = [int(word) for word in parent.stdout.readline().split()]
        assert len(groups) == 2 and all(alive(group) for group in groups)
        parent.kill()
    wait_until(lambda: not any(alive(group) for group in groups), "the children have ended")


def test_a_terminated_site_command_leaves_nothing(running, tmp_path):
    credentials = provision(tmp_path / "federation", ["ankara"], "localhost", free_port())
    code = "import sys; from pathlib import Path; "
    code += "from fedns.federation.transports.nvflare.processes import keep_site_running as k; "
    code += "k(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))"
    command = [sys.executable, "-c", code, credentials.sites["ankara"], SERVICE]
    # A service that cannot be built ends the command with the reason.
    refused = subprocess.run([*command, "missing.toml"], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert refused.returncode == 1 and refused.stderr.strip().endswith("FileNotFoundError: there is no missing.toml")
    with subprocess.Popen([*command, running.config]) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        wait_until(lambda: children.read_text(), "the site has been started")
        child = int(children.read_text().split()[0])
        parent.terminate()
        assert parent.wait(PATIENCE_SECONDS) == -signal.SIGTERM  # as without a site
    wait_until(lambda: not alive(child), "the site has ended")


def test_a_site_answers_the_server_alone_and_its_latest_request(running, monkeypatch):
    monkeypatch.syspath_prepend(running.folder)
    answers = SiteAnswers(SERVICE, str(running.config))

    def ask(origin: str, number: object, payload: object = b"abc", session: str = "first") -> tuple[str, object]:
        headers = {MessageHeaderKey.ORIGIN: origin, SESSION: session, EXCHANGE: number}
        reply = answers.answer(Message(headers, payload))
        return reply.get_header(MessageHeaderKey.RETURN_CODE), reply.payload

    assert ask("bergen", 1) == ask("server.job", 1) == (ReturnCode.UNAUTHENTICATED, None)
    assert ask("server", 2) == (ReturnCode.OK, b"cba")
    assert ask("server", 1) == (ReturnCode.ABORT_RUN, None)
    assert ask("server", 3, {"not": "bytes"}) == ask("server", "3") == (ReturnCode.INVALID_REQUEST, None)
    assert ask("server", 1, session="second") == (ReturnCode.OK, b"cba")  # a server that was started again counts from one


def test_a_site_has_no_administration(running, monkeypatch):
    """NVFlare's request processors would let the server and fellow sites run shell commands here."""
    from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

    monkeypatch.setattr(ClientRequestProcessors, "request_processors", ["a processor"])
    monkeypatch.syspath_prepend(running.folder)
    SiteAnswers(SERVICE, str(running.config))
    assert ClientRequestProcessors.request_processors == []


@pytest.mark.parametrize("sites", [[], ["ankara", "ankara"], ["server"], ["localhost"], ["a.b"], ["a b"]])
def test_names_that_cannot_be_are_refused(sites, tmp_path):
    with pytest.raises(ConfigError):
        provision(tmp_path, sites, "localhost", 8002)


def test_a_folder_without_credentials_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="holds no credentials"):
        NVFlareTransport(tmp_path)
