"""What a run calls is compiled before it is open, and a site can be ended meanwhile."""

import logging
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.federation.in_process import OPEN_HANDED, Given, run_of
from tests.processes import PATIENCE_SECONDS, start

from fedns.federation.protocol.packets import ANSWER, OPEN, Packet
from fedns.federation.site import rehearsal
from fedns.federation.site.guard import Guard
from fedns.federation.site.service import SiteService
from fedns.numerics.cpu import dense, kernels
from fedns.numerics.cpu.narrow import sjlt, srht
from fedns.runs.builder import algorithm_of, problem_of

SHARDS = make_shards(rows=300, sizes=(300,))


def compiled():
    """How many variants every kernel has by now."""
    modules = (dense, kernels, sjlt, srht)
    return {
        f"{module.__name__}.{name}": len(value.signatures)
        for module in modules
        for name, value in vars(module).items()
        if hasattr(value, "signatures")
    }


@pytest.mark.parametrize("method", ["fedns", "auto"])
def test_nothing_is_left_to_compile_once_a_run_is_open(method, tmp_path):
    spec = run_of(method, 1, loss="squared", sketch="sjlt", rounds=3)
    site = SiteService("site-0", Given(SHARDS, compiling=True), OPEN_HANDED, tmp_path)
    opened = site.answer(Packet(OPEN, bytes(16), 0, 1, 0, 0, spec.agreed()).encode())
    assert Packet.decode(opened).kind == ANSWER
    before = compiled()
    other = Guard(OPEN_HANDED, tmp_path, replace(SHARDS, targets=np.ones(300)))
    rehearsal._play(algorithm_of(spec), problem_of(spec), other, spec)
    assert sum(before.values()) > 0 and compiled() == before


def test_a_rehearsal_goes_through_all_of_a_run(caplog, tmp_path):
    """Rounds, sketches and looks at the objective: of what it does not get to, the first request would wait."""
    caplog.set_level(logging.DEBUG, "fedns.site")
    spec = run_of("fedns", 1, loss="squared", sketch="sjlt", rounds=3)
    rehearsal._play(algorithm_of(spec), problem_of(spec), Guard(OPEN_HANDED, tmp_path, SHARDS), spec)
    assert "ended early" not in caplog.text


def test_a_rehearsal_that_takes_long_says_so_and_one_that_fails_is_no_trouble(monkeypatch, caplog, tmp_path):
    caplog.set_level(logging.DEBUG, "fedns.site")
    monkeypatch.setattr(rehearsal, "WORD_SECONDS", 0.0)
    held = threading.Event()
    threading.Timer(0.2, held.set).start()
    monkeypatch.setattr(rehearsal, "_Alone", lambda *_: held.wait() and 1 / 0)
    spec = run_of("fedns", 1)
    rehearsal.rehearse(spec, problem_of(spec), Guard(OPEN_HANDED, tmp_path, SHARDS))
    assert "compiling what fedns calls" in caplog.text and "compiled in" in caplog.text
    assert "ended early: division by zero" in caplog.text


ENDLESS = """
import os, sys, threading
from pathlib import Path
from types import SimpleNamespace
import numpy as np
import fedns
from fedns.federation.processes import ended_by_sigterm
from fedns.federation import site_command as command
from fedns.federation.site import rehearsal
rehearsal._play = lambda *_: (print("compiling", flush=True), threading.Event().wait())
class Engine:
    contact = None
    def serve(self, *_):
        shards = fedns.Shards.from_arrays(np.ones((4, 2)), np.ones(4), [4])
        guard, spec = SimpleNamespace(shards=shards), SimpleNamespace(sites=("n",))
        rehearsal.algorithm_of = lambda spec: fedns.FedNS()
        rehearsal.rehearse(spec, fedns.Problem(fedns.Logistic()), guard)
command.engine_named = lambda name: Engine()
command.SiteConfig.read = lambda path: type("C", (), {"name": "n", "engine": "e", "credentials": Path("none")})
command.run_site("site.toml", print)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_site_that_compiles_can_be_ended(number, status):
    process = start([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "compiling\n"
    process.send_signal(number)
    assert process.wait(PATIENCE_SECONDS) == status
    process.stdout.close()
