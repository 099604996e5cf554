"""A package outside, built and installed from its folder, is found by the suite, the commands and the workers of a sweep."""

import itertools
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import dense_features, make_shards

import fedns

ROOT = Path(__file__).parents[2]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
ALIKE = [
    ("heavyball", "gd"),
    ("pseudohuber", "probit"),
    ("sparsesigns", "gaussian"),
    ("logcosh", "pseudo_huber"),
]  # theirs, and one of ours
SWEEP = """
methods = ["heavyball", "heavyball:momentum=0", "fedns:sketch=sparsesigns"]
split = ["iid", "sorted"]
scale = "standardise"
dataset = "diabetes"
loss = "pseudohuber"
rounds = 3
trials = 1
clients = 4
"""
RUN_SWEEP = """
from pathlib import Path
from fedns.lab.comparison.sweep import read_sweep, run_sweep
done, interrupted = run_sweep(read_sweep(Path({config!r}), {{"out": {out!r}}}), processes=2)
assert len(done) == 2 and not interrupted
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder it was installed into; the network is not asked."""
    target = tmp_path_factory.mktemp("site-packages")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    run([sys.executable, "-m", "pip", "install", "-q", *options, "--target", target, ROOT / "tests" / "stranger"])
    return target


def run(command, path="", **settings):
    """What it prints; it has to succeed."""
    environment = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, **settings
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_conformance_suite_covers_it_as_it_covers_our_own(installed, tmp_path):
    results = tmp_path / "results.xml"
    suites = [f"tests/conformance/test_every_{kind}.py" for kind in ("method", "loss", "sketch", "penalty")]
    chosen = " or ".join(itertools.chain(*ALIKE))
    run([*PYTEST, *suites, "-k", chosen, f"--junitxml={results}"], installed)
    names = [case.get("name") for case in ElementTree.parse(results).iter("testcase") if case.find("skipped") is None]
    for theirs, ours in ALIKE:
        covered = {name.replace(theirs, "") for name in names if theirs in name}
        assert len(covered) > 8
        assert covered == {name.replace(ours, "") for name in names if ours in name}


def test_the_commands_know_it(installed):
    fedns_command = [sys.executable, "-m", "fedns.cli"]
    assert "gradient descent with momentum" in " ".join(run([*fedns_command, "methods"], installed).split())
    nobody = subprocess.run([*fedns_command, "methods"], cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    assert "heavyball" not in nobody.stdout


def test_a_sweep_with_several_processes_runs_it(installed, tmp_path):
    config, out = tmp_path / "sweep.toml", tmp_path / "out"
    config.write_text(SWEEP)
    run([sys.executable, "-c", RUN_SWEEP.format(config=str(config), out=str(out))], installed)
    table = (out / "table.csv").read_text()
    assert all(method in table for method in ("heavyball", "heavyball:momentum=0", "fedns:sketch=sparsesigns"))
    settings = [path.read_text() for path in out.rglob("*.toml")]
    assert settings and all('loss = "pseudohuber"' in text for text in settings)


def test_its_method_is_what_five_lines_of_numpy_say(installed, monkeypatch):
    monkeypatch.syspath_prepend(installed)
    from fedns_stranger.heavy_ball import HeavyBall

    shards = make_shards(regression=True)
    x, y = dense_features(shards), shards.targets
    w, v = np.zeros(13), np.zeros(13)
    for _ in range(6):
        v = 0.3 * v - 0.2 * (x.T @ (x @ w - y) / len(y) + 0.01 * w)
        w = w + v
    problem = fedns.Problem(fedns.Squared(), fedns.Ridge(0.01))
    history = fedns.simulate(HeavyBall(step_size=0.2, momentum=0.3), problem, shards, rounds=6)
    np.testing.assert_allclose(history.coefficients, w, rtol=1e-12)


LOSS_AND_SKETCH = """
import numpy as np, scipy.sparse
import fedns
from fedns.numerics.rng import stream_keys
from fedns.models.losses import LOSSES

capped, random = LOSSES["capped"](delta=0.7), np.random.default_rng(0)
x, y = random.normal(size=(240, 6)), random.normal(size=240) * 2.0
w, keys = random.normal(size=6), stream_keys(0, "sketch", 1, np.arange(2))
for features in (x, x * (np.abs(x) > 1.3), scipy.sparse.csr_matrix(x * (np.abs(x) > 1.3))):
    dense = features.toarray() if scipy.sparse.issparse(features) else features
    r = dense @ w - y
    slope, curvature = np.clip(r, -0.7, 0.7), (np.abs(r) <= 0.7) * 1.0
    shards = fedns.Shards.from_arrays(features, y, [100, 140])
    problem = fedns.Problem(capped)
    value = np.where(np.abs(r) <= 0.7, r * r / 2, 0.7 * (np.abs(r) - 0.35))
    np.testing.assert_allclose(problem.value(w, shards), [value[:100].mean(), value[100:].mean()], rtol=1e-13)
    root = np.sqrt(curvature)[:, None] * dense
    for name in fedns.SKETCHES:  # its own among them; SJLT takes six columns eight rows at a time
        sketch = fedns.SKETCHES[name](30)
        gradient, table, offsets = problem.gradient_and_sketch(w, shards, sketch.plan(shards.sizes), keys)
        np.testing.assert_allclose(gradient[0], dense[:100].T @ slope[:100] / 100, atol=1e-13)
        expected = sketch.matrix(100, keys[0]) @ root[:100] / 10.0
        np.testing.assert_allclose(table[: offsets[1]], expected, atol=1e-13)
for method in (fedns.FedAvg(batch_size=16), fedns.FedNS(fedns.SKETCHES["sparsesigns"](30)), fedns.FedNewton()):
    history = fedns.simulate(method, fedns.Problem(capped, fedns.Ridge(1e-2)), shards, rounds=5)
    assert history.objective[-1] < history.objective[0]
print("as it should be")
"""


def test_a_loss_for_one_row_at_a_time_works_with_every_sketch(installed):
    assert run([sys.executable, "-W", "error", "-c", LOSS_AND_SKETCH], installed) == "as it should be\n"


TRANSFORM = """
from pathlib import Path
import numpy as np
import fedns
from fedns.studies.outputs import write_fit
from fedns.studies.prediction import Model

random = np.random.default_rng(1)
x = random.normal(size=300)
y = x - 2.0 * np.maximum(0.0, x - 0.4) + 0.1 * random.normal(size=300)
study = fedns.Study("y ~ hinges(x, 2)", "gaussian")
fit = fedns.fit_study(study, {"a": {"x": x[:100], "y": y[:100]}, "b": {"x": x[100:], "y": y[100:]}})
assert fit.names == ("Intercept", *(f"hinges(x, 2)[{number}]" for number in (1, 2, 3))) and fit.converged
knots = np.array(fit.agreed.design.agreement.knots["hinges(x, 2)"])
np.testing.assert_allclose(knots, np.quantile(x, [1 / 3, 2 / 3]), atol=0.05)
columns = np.column_stack([np.ones(300), x, *(np.maximum(0.0, x - knot) for knot in knots)])
expected = np.linalg.lstsq(columns, y, rcond=None)[0]
np.testing.assert_allclose(fit.coefficients, expected, atol=1e-10)
write_fit(fit, Path("results"))
np.testing.assert_allclose(Model.load("results/model.json").predict({"x": x}).means, columns @ expected, atol=1e-9)
print("as it should be")
"""


def test_a_transform_is_agreed_on_coded_fitted_and_predicted_with(installed, tmp_path):
    code = TRANSFORM.replace("results", str(tmp_path))
    assert run([sys.executable, "-W", "error", "-c", code], installed) == "as it should be\n"


DIAGNOSTIC = """
import json
from pathlib import Path
import numpy as np
import fedns
from fedns.reports.what_left import known_replies
from fedns.studies.outputs import write_fit

random = np.random.default_rng(1)
x = random.normal(size=300)
ill = np.where(random.random(300) < 1 / (1 + np.exp(-x)), "yes", "no")
study = fedns.Study("ill ~ x", "binomial", event=("yes",), non_event=("no",))
fit = fedns.fit_study(study, {"a": {"x": x[:100], "ill": ill[:100]}, "b": {"x": x[100:], "ill": ill[100:]}})
errors = ((ill == "yes") - 1 / (1 + np.exp(-fit["Intercept"] - fit["x"] * x))) ** 2
found = fit.further_diagnostics["brier"]
np.testing.assert_allclose([found.total.mean, found.sites["a"].mean], [errors.mean(), errors[:100].mean()], rtol=1e-9)
assert set(found.held_out) == {"a", "b"} and f"{found.total.mean:.4f}" in fit.summary()
write_fit(fit, Path("results"))
text = Path("results/model.json").read_text()
assert json.loads(text)["further_diagnostics"]["brier"]["total"]["mean"] == found.total.mean
assert f"{found.total.mean:.4f}" in Path("results/report.html").read_text() and "SquaredErrors" in known_replies()
print("as it should be")
"""


def test_a_diagnostic_is_asked_of_every_site_and_shown(installed, tmp_path):
    code = DIAGNOSTIC.replace("results", str(tmp_path))
    assert run([sys.executable, "-W", "error", "-c", code], installed) == "as it should be\n"
