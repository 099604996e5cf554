"""Sites behind sockets of one account: a federation of processes, and what is said of sites that do not answer."""

import contextlib
import threading
import time

import pytest
from tests.conftest import make_shards
from tests.federation.in_process import Federation, run_of, services
from tests.processes import PATIENCE_SECONDS, wait_until

from fedns.core.errors import ConfigError
from fedns.federation.processes import EngineError
from fedns.federation.provision import init_federation, renew
from fedns.federation.transports import LOOPBACK, loopback
from fedns.federation.transports.loopback import Loopback, listen
from fedns.lab.comparison.federation_demo import Demo, run_demo

SHARDS = make_shards(sizes=(90, 60, 150))


@pytest.fixture
def here(tmp_path_factory):
    """A folder with a short name, as the path of a socket has to be."""
    return tmp_path_factory.mktemp("s")


def start(place, answer):
    threading.Thread(target=listen, args=(place, answer), daemon=True).start()
    wait_until(place.exists, "the site listens")


def asked(folder, requests, seconds=PATIENCE_SECONDS):
    arrivals = list(Loopback(folder, list(requests)).exchange(requests, seconds))
    assert {arrival.site for arrival in arrivals} == set(requests) and len(arrivals) == len(requests)
    return {arrival.site: (arrival.payload, arrival.failure) for arrival in arrivals}


def test_a_run_has_the_bits_of_one_in_this_process(tmp_path, here):
    direct = Federation(SHARDS, tmp_path / "direct", run_of("fedns"))
    quiet = direct.start()
    over = Federation(SHARDS, tmp_path / "over", run_of("fedns"))
    for name, service in services(SHARDS, tmp_path / "sites").items():
        start(here / name, service.answer)
    over.transport = Loopback(here, over.spec.sites)
    history = over.start()
    assert history.coefficients.tobytes() == quiet.coefficients.tobytes() and history.ledger == quiet.ledger


@pytest.mark.slow
def test_a_federation_of_processes_shows_the_simulators_bits_and_bytes(tmp_path):
    demo = Demo("loopback", tmp_path / "demo", methods=("fedns",), dataset="breast_cancer", rounds=3)
    (shown,) = run_demo(demo, lambda method: contextlib.nullcontext([]))
    assert shown.same_bits and shown.same_bytes


def test_what_goes_wrong_at_one_site_is_a_sentence_about_it_alone(here, caplog):
    def fail(request):
        raise OSError("the patient's name is in here")

    start(here / "a", lambda request: request[::-1])
    start(here / "b", fail)
    start(here / "c", lambda request: time.sleep(30.0) or b"")
    began = time.monotonic()
    found = asked(here, dict.fromkeys("abcd", b"xy"), 1.0)
    assert time.monotonic() - began < 20.0
    assert found == {
        "a": (b"yx", ""),
        "b": (b"", "its service failed with OSError"),
        "c": (b"", "no answer within 1 s"),
        "d": (b"", "it is not connected"),
    }
    assert Loopback(here, ["a", "b", "d"]).connected() == ["a", "b"]


def test_a_site_that_ends_while_it_is_asked_is_said_to_be_lost(here):
    with loopback.Listener(str(here / "a")) as listener:
        threading.Thread(target=lambda: listener.accept().close(), daemon=True).start()
        assert asked(here, {"a": b"?"}) == {"a": (b"", "the connection to it was lost")}
    assert asked(here, {"a": b"?"})["a"][1] == "it is not connected"


def test_a_site_started_again_takes_the_place_of_one_that_was_killed(here):
    (here / "a").touch()  # what that one has left
    start(here / "a", bytes)
    wait_until(lambda: asked(here, {"a": b"?"}) == {"a": (b"?", "")}, "the new one answers")


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_answers_may_have_any_length_up_to_the_largest(size, here, monkeypatch):
    monkeypatch.setattr(loopback, "LARGEST_MESSAGE", 3_000_000)
    start(here / "a", lambda request: bytes(size + len(request)))
    assert asked(here, {"a": b""})["a"] == (bytes(size), "")
    if size == 3_000_000:
        assert asked(here, {"a": b"1"})["a"] == (b"", "the connection to it was lost")
        assert asked(here, {"a": b""})["a"] == (bytes(size), "")  # and the site is there still


def test_a_folder_that_others_can_enter_is_refused(tmp_path):
    init_federation(tmp_path / "f", "loopback", ["north"], "localhost:1")
    credentials = tmp_path / "f" / "coordinator" / "credentials"
    folder, sites = loopback._place(credentials)
    assert sites == ["north"] and folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()  # as a machine sweeps it away when it starts
    with LOOPBACK.open(credentials, "localhost:1", tmp_path) as transport:
        assert transport.connected() == [] and folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    for use in (
        lambda: LOOPBACK.serve(tmp_path / "f/sites/north/credentials", lambda config: bytes, tmp_path),
        LOOPBACK.open(credentials, "localhost:1", tmp_path).__enter__,
    ):
        with pytest.raises(EngineError, match=f"others can enter {folder}"):
            use()
    folder.rmdir()


def test_a_federation_is_of_this_machine_and_keeps_its_folder(tmp_path):
    with pytest.raises(ConfigError, match="carries nothing to other machines: give localhost:9 as the server, not hospital"):
        init_federation(tmp_path / "g", "loopback", ["north"], "hospital:9")
    with pytest.raises(ConfigError, match="holds no credentials"):
        LOOPBACK.open(tmp_path, "localhost:1", tmp_path).__enter__()
    init_federation(tmp_path / "f", "loopback", ["north"], "localhost:1")
    first = loopback._place(tmp_path / "f/coordinator/credentials")
    init_federation(tmp_path / "f", "loopback", ["north", "south"], "localhost:1")
    assert loopback._place(tmp_path / "f/coordinator/credentials") == (first[0], ["north", "south"])
    assert loopback._place(tmp_path / "f/sites/south/credentials") == (first[0], ["south"])
    with pytest.raises(ConfigError, match="cannot renew keys"):
        renew(tmp_path / "f")
    first[0].rmdir()
