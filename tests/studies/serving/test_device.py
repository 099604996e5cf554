"""A site that computes on a GPU: the processor's coefficients where there is one, one sentence where there is none."""

import csv
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.federation.in_process import OPEN_HANDED, Federation, InProcess, run_of
from tests.numerics.gpu.device import needs_device

from fedns.cli.app import main
from fedns.cli.serving import site_service, table_of
from fedns.federation import doctor
from fedns.federation.config import DataSource, SiteConfig
from fedns.models.cox import Cox
from fedns.models.problem import Problem
from fedns.numerics.errors import BackendError
from fedns.runs.builder import computed_on
from fedns.studies.example import write_example
from fedns.studies.federated import fit_federation
from fedns.studies.study import Study

SITE = 'name = "north"\nengine = "flower"\ndevice = "cuda"\n[data]\ndataset = "north.csv"\ntarget = "y"\n'
NEEDS = "device 'cuda' needs CuPy: pip install 'fedns[gpu]', or use device 'cpu'"


@pytest.fixture
def no_device(monkeypatch, tmp_path):
    """A site's file on a machine without CuPy."""
    for name in [name for name in sys.modules if name.startswith("fedns.numerics.gpu")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cupy", None)
    (tmp_path / "north.csv").write_text("a,b,y\n" + "".join(f"{i},{i % 7},{(-1) ** i}\n" for i in range(100)))
    (tmp_path / "site.toml").write_text(SITE)
    return tmp_path / "site.toml"


def test_a_device_that_is_not_there_is_known_before_anybody_connects(no_device):
    with pytest.raises(BackendError) as error:
        site_service(SiteConfig.read(no_device))
    assert str(error.value) == NEEDS


def test_the_doctor_and_a_check_of_a_table_say_so_too(no_device, capsys):
    assert doctor.Finding("device cuda", NEEDS) in doctor.examine(no_device, table_of)
    study = no_device.parent / "study.toml"
    study.write_text('formula = "y ~ a + b"\nevent = ["1"]\nnon_event = ["-1"]\n')
    with pytest.raises(SystemExit) as ended:
        main(["check", str(study), str(no_device.parent / "north.csv"), "--site", str(no_device)])
    assert ended.value.code == 2 and NEEDS in capsys.readouterr().err


def test_a_loss_of_the_processor_stays_there():
    problem = Problem(Cox())
    assert computed_on("cuda", problem) is problem


def pooled(x, labels, strength):
    """The minimum of the mean logistic loss and a ridge that spares the last coefficient, by Newton's method."""
    x, diagonal = np.c_[x, np.ones(len(x))], np.append(np.full(x.shape[1], strength), 0.0)
    w = np.zeros(x.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-labels * (x @ w)))
        gradient = x.T @ (-labels * (1 - p)) / len(x) + diagonal * w
        w = w - np.linalg.solve((x.T * (p * (1 - p))) @ x / len(x) + np.diag(diagonal), gradient)
    return w


@needs_device
@pytest.mark.parametrize("method", ["fedns", "fednewton", "auto"])
def test_plain_sites(tmp_path, method, device="cuda"):
    shards = make_shards(rows=900, columns=5, sizes=(400, 300, 200))
    federation = Federation(shards, tmp_path, run_of(method, rounds=40, sketch_size=64))
    for j, name in enumerate(federation.spec.sites):
        own = slice(shards.starts[j], shards.stops[j])
        np.savez(tmp_path / f"{name}.npz", X=shards.rows.values[own], y=shards.targets[own])
        config = SiteConfig(name, "flower", tmp_path, DataSource(f"{name}.npz"), f"{name}-state", OPEN_HANDED, device=device)
        federation.transport.services[name] = site_service(config).answer
    found, expected = federation.start().coefficients, pooled(shards.rows.values, shards.targets, 1e-2)
    assert np.abs(found - expected).max() <= 1e-10 * np.abs(expected).max()


@needs_device
def test_a_study(tmp_path, device="cuda"):
    paths = write_example(tmp_path)
    spec = replace(run_of("fednewton"), sites=tuple(path.stem for path in paths))
    answers = {}
    for path in paths:
        config = SiteConfig(path.stem, "flower", tmp_path, DataSource(path.name), path.stem, OPEN_HANDED, device=device)
        answers[path.stem] = site_service(config).answer
    study = Study("disease ~ age + chol", "binomial", event=("yes",), non_event=("no",))
    fit = fit_federation(study, spec, InProcess(answers), tmp_path / "run")
    tables = [np.array([[row["age"], row["chol"], row["disease"]] for row in rows_of(path)]) for path in paths]
    age, chol = (np.concatenate([t[:, j] for t in tables]).astype(float) for j in (0, 1))
    ill = np.where(np.concatenate([t[:, 2] for t in tables]) == "yes", 1.0, -1.0)
    slope, level = chol.std(), chol.mean()
    a, c, intercept = pooled(np.c_[age, (chol - level) / slope], ill, 0.0)
    expected = np.array([intercept - c * level / slope, a, c / slope])
    assert fit.names == ("Intercept", "age", "chol")
    np.testing.assert_allclose(fit.coefficients, expected, rtol=1e-10)


def rows_of(path):
    """The table as dictionaries of text, with points in its numbers."""
    text = path.read_text()
    separator = ";" if ";" in text else ","
    lines = (text.replace(",", ".") if separator == ";" else text).splitlines()
    return list(csv.DictReader(lines, delimiter=separator))
