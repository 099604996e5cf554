"""Names that 0.1 had: rooms warn for one release, commands are the same."""

import importlib
import subprocess
import sys
import warnings

import numpy as np
import pytest
from typer.main import get_command

import fedns
from fedns.cli.app import app
from fedns.core.clients import ClientMemory

NAMES = {
    "fedns.algorithms": ("FedNS", "fedns.methods"),
    "fedns.algorithms.fedns": ("FedNS", "fedns.methods.fedns"),
    "fedns.problems.problem": ("Problem", "fedns.models.problem"),
    "fedns.problems.losses": ("Logistic", "fedns.models.losses"),
    "fedns.estimators": ("FederatedRidge", "fedns.studies.estimators"),
    "fedns.transports": ("TRANSPORTS", "fedns.federation.transports"),
}
COMMANDS = {
    "datasets", "methods", "compare", "run", "reproduce", "site", "coordinate", "init-federation", "renew", "revoke",
    "demo-federation", "doctor", "check", "fit", "predict", "what-left", "data", "study",
}  # fmt: skip


@pytest.mark.parametrize("former", NAMES)
def test_a_former_room_is_the_room_itself_with_a_warning(former, monkeypatch):
    name, now = NAMES[former]
    room = ".".join(former.split(".")[:2])
    with warnings.catch_warnings(action="ignore"):
        importlib.import_module(room)
    if former in sys.modules:
        monkeypatch.delitem(sys.modules, former)
    with pytest.warns(DeprecationWarning, match=rf"^{former} is {now} now; the former name goes with fedns 0.3$"):
        found = importlib.import_module(former)
    assert getattr(found, name) is getattr(importlib.import_module(now), name)


def test_a_warning_names_the_line_of_the_import(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from fedns.algorithms import FedNS\nprint(FedNS.__module__)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "fedns.methods.fedns"
    assert f"{script}:1: DeprecationWarning: fedns.algorithms is fedns.methods now" in done.stderr


def test_what_never_was_there_is_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"fedns\.algorithms\.nothing"), warnings.catch_warnings(action="ignore"):
        importlib.import_module("fedns.algorithms.nothing")
    with pytest.raises(ModuleNotFoundError, match=r"fedns\.nothing"):
        importlib.import_module("fedns.nothing")


def test_the_commands_are_there():
    assert set(get_command(app).commands) >= COMMANDS
    assert fedns.__version__


@pytest.mark.parametrize(("former", "now"), [("recall", "read_copy"), ("held", "in_place")])
def test_a_strangers_handler_goes_on_with_the_names_it_knows(former, now):
    shards = fedns.Shards.from_arrays(np.zeros((2, 1)), np.zeros(2), [1, 1])
    ids = np.arange(2)
    clients = fedns.Clients(shards, ids, 0, 1, ClientMemory(ids))
    clients.remember("step", np.ones((2, 3)))
    with pytest.warns(
        DeprecationWarning, match=rf"^Clients.{former} is Clients.{now} now; the former name goes with fedns 0.3$"
    ):
        found = getattr(clients, former)("step", 3)
    np.testing.assert_array_equal(found, np.ones((2, 3)))
    with pytest.raises(AttributeError, match="'Clients' has no attribute 'forget'"):
        clients.forget  # noqa: B018


def test_a_strangers_message_goes_on_with_the_type_it_knows():
    with pytest.warns(DeprecationWarning, match='^dtype="coded" is "small_ints" now; the former name goes with fedns 0.3$'):
        declared = fedns.wire("features", dtype="coded")
    assert declared.metadata == fedns.wire("features", dtype="small_ints").metadata
