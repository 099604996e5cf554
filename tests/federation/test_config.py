"""The files of sites and coordinators: read into typed settings, or refused in one sentence that names file and key."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedns.core.errors import ConfigError, MessageError
from fedns.federation.config import DataSource, SiteConfig, read_experiment
from fedns.federation.permissions import Permissions
from fedns.runs.over_sites import AGREED, ColumnRun, Handshake, Policy, StudyRun, read_agreed

SITE = """
name = "north"
engine = "flower"
"""
DATA = """
[data]
dataset = "rows.csv"
"""
EXPERIMENT = """
engine = "nvflare"
sites = ["north", "south"]
"""


def site(tmp_path, text):
    (tmp_path / "site.toml").write_text(text)
    return SiteConfig.read(tmp_path / "site.toml")


def experiment(tmp_path, text):
    (tmp_path / "experiment.toml").write_text(text)
    return read_experiment(tmp_path / "experiment.toml")


def refused(read, tmp_path, text):
    """The sentence, which must name the file and take one line."""
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    sentence = str(error.value)
    assert "\n" not in sentence
    name = tmp_path / f"{read.__name__}.toml"
    assert str(name) in sentence
    return sentence.replace(str(name), "FILE")


def test_a_short_site_file_takes_the_defaults(tmp_path):
    assert site(tmp_path, SITE + DATA) == SiteConfig("north", "flower", tmp_path, DataSource("rows.csv"))


def test_a_full_site_file(tmp_path):
    text = """
        name = "north"
        engine = "nvflare"
        state = "memory"
        metrics_port = 9464
        device = "cpu"

        [data]
        dataset = "rows.csv"
        target = "outcome"
        weight = "w"
        positive = "yes"

        [permit]
        handlers = ["register", "curvature"]
        smallest_rows = 50
        largest_sketch_fraction = 1
        wire = ["float32"]
        rounds = 20
        largest_bytes = 1000000
    """
    data = DataSource("rows.csv", "outcome", "w", "yes")
    permit = Permissions(
        handlers=("register", "curvature"), smallest_rows=50, largest_sketch_fraction=1.0, wire=("float32",), rounds=20,
        largest_bytes=1000000,
    )  # fmt: skip
    found = site(tmp_path, text)
    assert found == SiteConfig("north", "nvflare", tmp_path, data, "memory", permit, 9464, device="cpu")
    assert type(found.permit.largest_sketch_fraction) is float
    assert found.credentials == tmp_path / "credentials"


def test_a_short_experiment_file_takes_the_defaults(tmp_path):
    found = experiment(tmp_path, EXPERIMENT)
    assert (found.engine, found.sites, found.home) == ("nvflare", ("north", "south"), tmp_path)
    assert (found.method, found.loss, found.strength, found.gradient_tol) == ("fedns", "logistic", 1e-3, 1e-8)
    assert found.policy == Policy() and found.folder == tmp_path / "run"


def test_a_full_experiment_file(tmp_path):
    text = """
        engine = "flower"
        sites = ["a", "b", "c"]
        method = "fedndes:line_search=local"
        sketch = "sjlt"
        sketch_size = 32
        loss = "squared"
        strength = 1
        intercept = true
        rounds = 7
        gradient_tol = 1e-6
        seed = 3
        wire = "float32"
        listen = "0.0.0.0:9000"
        out = "results"

        [policy]
        timeout_seconds = 5
        quorum = 2
        absent = "reuse"
        patience_seconds = 10.5
        largest_bytes = 1000
    """
    found = experiment(tmp_path, text)
    assert found.policy == Policy(5.0, 2, "reuse", 10.5, 1000)
    assert found.folder == tmp_path / "results" and found.gradient_tol == 1e-6
    assert (found.method, found.sketch, found.sketch_size, found.loss) == (
        "fedndes:line_search=local",
        "sjlt",
        32,
        "squared",
    )
    assert (found.strength, found.intercept, found.seed, found.wire, found.rounds) == (1.0, True, 3, "float32", 7)
    assert found.sites == ("a", "b", "c")


def test_what_the_coordinator_sends_is_what_the_sites_read(tmp_path):
    sent = experiment(tmp_path, EXPERIMENT + "method = 'fednl'\nstrength = 0.1\nseed = 9\nrounds = 3")
    read = read_agreed(sent.agreed())
    assert [getattr(read, name) for name in AGREED[:-2]] == [getattr(sent, name) for name in AGREED[:-2]]
    assert type(read) is ColumnRun and read.agreed() == sent.agreed()


def test_the_kinds_of_runs_travel_as_their_bytes_were_pinned(tmp_path):
    """The digest that an owner pins is that of these bytes; nobody pins a handshake's."""
    run = experiment(tmp_path, EXPERIMENT + "seed = 9\nrounds = 3")
    handshake = Handshake.like(run, study="{}", loss="poisson")
    fit = StudyRun.like(handshake, study="{}", agreement="{1}", method="auto", rounds=50)
    middle = b'"strength":0.001,"intercept":false,"seed":9,"wire":"float64"'
    shared = b'"sites":["north","south"],"study":'
    for kind, method, loss, rest in (
        (run, b'"method":"fedns",', b"logistic", b',"rounds":3,' + shared + b'"","agreement":""}'),
        (handshake, b"", b"poisson", b"," + shared + b'"{}"}'),
        (fit, b'"method":"auto",', b"poisson", b',"rounds":50,' + shared + b'"{}","agreement":"{1}"}'),
    ):
        sketch = b"{" + method + b'"sketch":"srht","sketch_size":32,"loss":"' + loss + b'",'
        assert kind.agreed() == sketch + middle + rest
        read = read_agreed(kind.agreed())
        assert type(read) is type(kind) and read.agreed() == kind.agreed() and read.digest == kind.digest


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": "gd"}, "does not have the fields that this version knows"),
        ({"rounds": 1}, "does not have the fields that this version knows"),
        ({"agreement": ""}, "does not have the fields that this version knows"),
        ({"agreement": "", "method": "gd", "rounds": 1}, "study must be '' without an agreement"),
        ({"study": 3}, "study must be a text, got 3"),
    ],
)
def test_a_handshake_has_no_method_and_a_run_over_columns_no_study(changes, sentence):
    values = json.loads(Handshake(sites=("a",), study="{}").agreed())
    with pytest.raises(MessageError, match=sentence):
        read_agreed(json.dumps(values | changes).encode())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (SITE + "nmae = 'x'" + DATA, "FILE: unknown setting 'nmae': did you mean name? Known are"),
        (SITE + DATA + "tarqet = 'y'", "FILE, [data]: unknown setting 'tarqet': did you mean target or dataset? Known"),
        (SITE + DATA + "[permit]\nsmalest_rows = 3", "FILE, [permit]: unknown setting 'smalest_rows': did you mean"),
        (SITE + DATA + "[premit]\nrounds = 3", "FILE: unknown setting 'premit'"),
        (SITE + "folder = '/etc'" + DATA, "FILE: unknown setting 'folder'"),
        (SITE, "FILE, [data] lacks 'dataset'"),
        ("name = 'north'" + DATA, "FILE lacks 'engine'"),
        (DATA, "FILE lacks 'name' and 'engine'"),
        (SITE + "data = 3", "FILE, [data] must be a table"),
        (SITE + DATA + "[[permit]]\nrounds = 3", "FILE, [permit] must be a table"),
        ("name = 3\nengine = 'flower'" + DATA, "FILE: name must be a text, got 3"),
        (SITE + DATA + "target = 5", "FILE, [data]: target must be a text, got 5"),
        (SITE + DATA + "[permit]\nrounds = 3.5", "FILE, [permit]: rounds must be a whole number, got 3.5"),
        (SITE + DATA + "[permit]\nrounds = true", "FILE, [permit]: rounds must be a whole number, got True"),
        (SITE + DATA + "[permit]\nhandlers = 'learn'", "FILE, [permit]: handlers must be a list of texts, got 'learn'"),
        (SITE + DATA + "[permit]\nhandlers = [1]", "FILE, [permit]: handlers must be a list of texts, got [1]"),
        (SITE + DATA + "[permit]\nwire = 'float32'", "FILE, [permit]: wire must be a list of texts, got 'float32'"),
        (SITE + DATA + "[permit]\nwire = ['float16']", "FILE, [permit]: wire must name float64 or float32, got ['float16']"),
        (SITE + DATA + "[permit]\nlargest_sketch_fraction = nan", "FILE, [permit]: largest_sketch_fraction must be"),
        (SITE + "device = 'cude'" + DATA, "FILE: unknown device 'cude': did you mean cuda or cpu? Known are"),
        ("name = 'north'\nengine = 'flowr'" + DATA, "FILE: unknown engine 'flowr': did you mean flower? Known are"),
        ("name = north", "'FILE' is not TOML: "),
        (SITE + SITE, "'FILE' is not TOML: "),
    ],
)  # fmt: skip
def test_a_bad_site_file_is_refused_in_a_sentence(text, sentence, tmp_path):
    assert refused(site, tmp_path, text).startswith(sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (EXPERIMENT + "metod = 'fedns'", "FILE: unknown setting 'metod': did you mean method"),
        (EXPERIMENT + "[policy]\nqorum = 2", "FILE, [policy]: unknown setting 'qorum': did you mean quorum? Known are"),
        (EXPERIMENT + "[polic]\nquorum = 2", "FILE: unknown setting 'polic'"),
        ("engine = 'flower'", "FILE lacks 'sites'"),
        ("", "FILE lacks 'engine' and 'sites'"),
        ("engine = 'floower'\nsites = ['a']", "FILE: unknown engine 'floower': did you mean flower"),
        ("engine = 'flower'\nsites = 'a'", "FILE: sites must be a list of texts, got 'a'"),
        ("engine = 'flower'\nsites = ['a', 2]", "FILE: sites must be a list of texts, got ['a', 2]"),
        ("engine = 'flower'\nsites = []", "FILE: sites must be names, each once, got []"),
        ("engine = 'flower'\nsites = ['a', 'b', 'a']", "FILE: sites must be names, each once, got ['a', 'b', 'a']"),
        (EXPERIMENT + "[policy]\nquorum = 3", "FILE: a quorum of 3 is more than the sites there are"),
        (EXPERIMENT + "[policy]\nquorum = 0", "FILE, [policy]: quorum must be a whole number >= 1, got 0"),
        (EXPERIMENT + "[policy]\nabsent = 'ignore'", "FILE, [policy]: absent must be 'wait' or 'renormalise' or 'reuse'"),
        (EXPERIMENT + "[policy]\ntimeout_seconds = 0", "FILE, [policy]: timeout_seconds must be a finite number > 0"),
        (EXPERIMENT + "[policy]\ntimeout_seconds = nan", "FILE, [policy]: timeout_seconds must be a finite number > 0"),
        (EXPERIMENT + "[policy]\npatience_seconds = -1", "FILE, [policy]: patience_seconds must be a finite number >= 0"),
        (EXPERIMENT + "[policy]\nquorum = 1.5", "FILE, [policy]: quorum must be a whole number, got 1.5"),
        (EXPERIMENT + "policy = 'wait'", "FILE, [policy] must be a table"),
        (EXPERIMENT + "strength = 'big'", "FILE: strength must be a number, got 'big'"),
        (EXPERIMENT + "strength = true", "FILE: strength must be a number, got True"),
        (EXPERIMENT + "gradient_tol = 'none'", "FILE: gradient_tol must be a number, got 'none'"),
        (EXPERIMENT + "intercept = 1", "FILE: intercept must be true or false, got 1"),
        (EXPERIMENT + "rounds = 1e3", "FILE: rounds must be a whole number, got 1000.0"),
        (EXPERIMENT + "listen = '9092'", "FILE: listen must be a host and a port, like 127.0.0.1:9092, got '9092'"),
        (EXPERIMENT + "listen = 'here:there'", "FILE: listen must be a host and a port"),
        (EXPERIMENT + "listen = 'here:70000'", "FILE: listen must be a host and a port"),
        ("engine = ", "'FILE' is not TOML: "),
    ],
)  # fmt: skip
def test_a_bad_experiment_file_is_refused_in_a_sentence(text, sentence, tmp_path):
    assert refused(experiment, tmp_path, text).startswith(sentence)


@pytest.mark.parametrize("read", [SiteConfig.read, read_experiment])
def test_a_file_that_is_not_there(read, tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read '.*gone\.toml': no such file or directory"):
        read(tmp_path / "gone.toml")


def test_the_folder_is_that_of_the_file_wherever_one_is(tmp_path, monkeypatch):
    site(tmp_path, SITE + DATA)
    monkeypatch.chdir(tmp_path)
    assert SiteConfig.read(Path("site.toml")).folder == tmp_path


def test_reading_the_files_needs_neither_engine():
    """Somebody who has installed one of them, or none, gets a sentence about it later and not an ImportError here."""
    code = "import sys, fedns.federation.config, fedns.federation.site.service, fedns.federation.coordinator.session\n"
    code += "print([name for name in ('flwr', 'nvflare') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
