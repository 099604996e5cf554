"""A poisoned site is named whenever it moves a coefficient by more than a standard error, over whole runs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from scipy.special import expit
from tests.federation.in_process import Federation, run_of

from fedns.cli import federation_commands
from fedns.core.clients import messages_of
from fedns.core.cohort import Registration, register
from fedns.core.errors import ConfigError, MessageError
from fedns.core.messages import Discloses
from fedns.core.messages.encoding import decode, encode
from fedns.core.shards import Shards
from fedns.federation.coordinator.influence import FinalAnswers, geometric_median, influences
from fedns.federation.coordinator.replies import RULES, combine_replies, trimmed_mean
from fedns.federation.protocol.absence import FederationError
from fedns.federation.protocol.packets import ANSWER, Packet
from fedns.models.evaluation import evaluate_locally
from fedns.reports.influence_part import apart_sentence, influence_table
from fedns.runs.builder import algorithm_of
from fedns.runs.over_sites import Policy

SITES, ROWS, FEATURES, STRENGTH = 4, 400, 6, 1e-3
POISONED = "site-1"


def federation(seed: int = 0, sites: int = SITES) -> Shards:
    """Rows of sites that were all drawn alike."""
    draw = np.random.default_rng(seed)
    truth = draw.normal(size=FEATURES)
    rows = draw.normal(size=(sites * ROWS, FEATURES))
    labels = np.where(draw.random(len(rows)) < expit(rows @ truth), 1.0, -1.0)
    return Shards.from_arrays(rows, labels, [ROWS] * sites)


def pooled_model(shards: Shards) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and standard errors over all rows, by Newton's method written out."""
    rows, w = np.asarray(shards.rows.values), np.zeros(FEATURES)
    for _ in range(20):
        chances = expit(rows @ w)
        gradient = rows.T @ (chances - (shards.targets > 0)) / len(rows) + STRENGTH * w
        hessian = (rows.T * (chances * (1 - chances))) @ rows / len(rows) + STRENGTH * np.eye(FEATURES)
        w -= np.linalg.solve(hessian, gradient)
    return w, np.sqrt(np.diag(np.linalg.inv(hessian)) / len(rows))


class Poisoned:
    """A site that changes what it answers; it knows the point that it was asked about."""

    def __init__(self, honest: Callable[[bytes], bytes], change: Callable, method: str):
        handlers = [register, evaluate_locally, *algorithm_of(run_of(method)).handlers()]
        self.honest, self.change = honest, change
        self.requests, self.replies = zip(*(messages_of(handler) for handler in handlers), strict=True)

    def __call__(self, request: bytes) -> bytes:
        packet = Packet.decode(self.honest(request), 2**28)
        (message, envelope) = self.decoded(packet.body, self.replies)
        if packet.kind != ANSWER or message is None:
            return packet.encode()
        asked, _ = self.decoded(Packet.decode(request, 2**28).body, self.requests)
        changed = self.change(message, getattr(asked, "coefficients", None))
        return replace(packet, body=encode(changed, envelope, np.dtype("<f8"))).encode()

    @staticmethod
    def decoded(body: bytes, kinds):
        for kind in kinds:
            with contextlib.suppress(MessageError):
                return decode(kind, body)
        return None, None


def flipped(shards: Shards) -> Shards:
    targets = shards.targets.copy()
    targets[shards.starts[1] : shards.stops[1]] *= -1
    return replace(shards, targets=targets)


def scaled(message, point):
    factors = {Discloses.GRADIENT: 10.0, Discloses.LOSS: 10.0, Discloses.HESSIAN: 10.0, Discloses.SKETCH: 10.0**0.5}
    known = {n: getattr(message, n) * factors[s.discloses] for n, s in message.specs().items() if s.discloses in factors}
    return replace(message, **known)


def sign_flipped(message, point):
    return replace(message, gradient=-message.gradient) if "gradient" in message.specs() else message


def drawn_to_a_target(message, point):
    return replace(message, gradient=0.25 * (point - 2.0)) if "gradient" in message.specs() else message


def inflated(message, point):
    if not isinstance(message, Registration):
        return message
    return replace(message, num_rows=50 * message.num_rows, total_weight=50.0 * message.total_weight)


def poisoned_run(folder, shards: Shards, change: Callable | None, method: str, policy: Policy | None = None):
    spec = run_of(method, shards.num_clients, strength=STRENGTH, intercept=False, rounds=12)
    run = Federation(shards, folder, spec, policy)
    if change is not None:
        run.transport.services[POISONED] = Poisoned(run.transport.services[POISONED], change, method)
    history = run.start(gradient_tol=1e-6)
    return history.coefficients, run.cohort.influences(history.coefficients)


CASES: dict[str, tuple[Callable[[Shards], Shards], Callable | None]] = {
    "label-flipped": (flipped, None),
    "scaled 10 times": (lambda shards: shards, scaled),
    "sign-flipped": (lambda shards: shards, sign_flipped),
    "drawn to a target": (lambda shards: shards, drawn_to_a_target),
    "rows inflated 50 times": (lambda shards: shards, inflated),
}


@pytest.mark.parametrize("method", ["fednewton", "fedns"])
@pytest.mark.parametrize("case", CASES)
def test_a_poisoned_site_is_named(tmp_path, case, method):
    honest = federation(seed=1)
    reference, errors = pooled_model(honest)
    data, change = CASES[case]
    coefficients, found = poisoned_run(tmp_path, data(honest), change, method)
    moved = float(np.max(np.abs(coefficients - reference) / errors))
    own = next(site for site in found if site.name == POISONED)
    print(f"{case}, {method}: moved {moved:.3g} standard errors; {own}")
    assert moved > 1.0, "the case shows nothing"
    assert [site.name for site in found if site.named] == [POISONED], [str(site) for site in found]


@pytest.mark.parametrize("method", ["fednewton", "fedns"])
def test_sites_drawn_alike_are_not_named(tmp_path, method):
    for seed in range(2):
        _, found = poisoned_run(tmp_path / str(seed), federation(seed), None, method)
        assert len(found) == SITES and not any(site.named for site in found), found
        assert all(site.distance < 2.5 and 0.5 < site.growth < 2 for site in found)


def test_leaving_a_site_out_gives_the_model_of_the_others(tmp_path):
    """By one step from the common model, against Newton's method over the others' rows."""
    shards = federation()
    _, found = poisoned_run(tmp_path, shards, None, "fednewton")
    for left_out, site in enumerate(found):
        others = [client for client in range(SITES) if client != left_out]
        rows = [np.asarray(shards.rows.values)[shards.starts[c] : shards.stops[c]] for c in others]
        targets = [shards.targets[shards.starts[c] : shards.stops[c]] for c in others]
        exact, errors = pooled_model(Shards.from_arrays(np.concatenate(rows), np.concatenate(targets), [ROWS] * len(others)))
        assert np.max(np.abs(site.without - exact) / errors) < 0.05


def test_a_method_without_curvature_still_tells_shares_and_growth(tmp_path):
    _, found = poisoned_run(tmp_path, federation(), sign_flipped, "gd")
    assert all(site.change is None for site in found)
    assert found[1].growth < 0 and "falls where that of a convex loss grows" in found[1].named


def test_more_rows_than_agreed_end_the_run(tmp_path):
    shards, policy = federation(), Policy(patience_seconds=0.0, largest_rows=1000)
    words = r"site 'site-1' states 20000 rows .* at most 1000 were agreed on \(largest_rows\)"
    with pytest.raises(FederationError, match=words):
        poisoned_run(tmp_path / "inflated", shards, inflated, "fedns", policy)
    _, found = poisoned_run(tmp_path / "honest", shards, None, "fedns", policy)
    assert len(found) == SITES


def test_more_rows_than_agreed_with_this_site_end_the_run(tmp_path):
    shards = federation()
    limits = {"site-0": 10**6, "site-1": 1000}
    with pytest.raises(FederationError, match=r"site 'site-1' states 20000 rows .* at most 1000 were agreed on"):
        poisoned_run(tmp_path / "inflated", shards, inflated, "fedns", Policy(patience_seconds=0.0, largest_rows=limits))
    policy = Policy(patience_seconds=0.0, largest_rows={"site-0": 1000})  # of the others nothing was said
    _, found = poisoned_run(tmp_path / "others", shards, inflated, "fedns", policy)
    assert "of the weight" in found[1].named


@pytest.mark.parametrize("rule", RULES)
def test_a_robust_aggregate_keeps_a_poisoned_site_from_the_model(tmp_path, rule):
    honest = federation(sites=7)
    reference, errors = pooled_model(honest)
    moved = {}
    for aggregate in ("mean", rule):
        policy = Policy(patience_seconds=0.0, aggregate=aggregate)
        coefficients, _ = poisoned_run(tmp_path / aggregate, flipped(honest), None, "fednewton", policy)
        moved[aggregate] = float(np.max(np.abs(coefficients - reference) / errors))
    print(rule, moved)
    assert moved["mean"] > 3.0 and moved[rule] < 0.6 * moved["mean"]


def test_robust_means_by_hand():
    points = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [1.0, 1.0], [1e9, -1e9]])
    assert RULES["median"](points).tolist() == [1.0, 1.0]
    assert trimmed_mean(points).tolist() == [4 / 3, 2 / 3]
    assert np.abs(geometric_median(points) - 1.0).max() < 0.5


@pytest.mark.parametrize(
    ("method", "sites", "words"),
    [("distributednewton", 4, "whose sites send gradients"), ("fednewton", 2, "three sites or more")],
)
def test_a_robust_aggregate_needs_gradients_and_three_sites(tmp_path, method, sites, words):
    with pytest.raises(ConfigError, match=words):
        poisoned_run(tmp_path, federation(sites=sites), None, method, Policy(patience_seconds=0.0, aggregate="median"))
    assert combine_replies("median", {}) == {}


def test_two_sites_that_contradict_each_other_are_both_named():
    bowl = np.eye(2)[None].repeat(2, axis=0)
    answers = FinalAnswers(["a", "b"], np.array([100.0, 100.0]), np.ones(2), np.array([[1.0, 0.0], [-1.0, 0.0]]), bowl)
    found = influences(answers, np.zeros(2), np.zeros(2), squared=False, agreed=False)
    assert all(site.named for site in found) and found[0].without.tolist() == [1.0, 0.0]


def test_sites_that_differ_beyond_chance_are_all_told_where_none_stands_out():
    names, gradients = ["a", "b", "c", "d", "e"], np.zeros((5, 2))
    gradients[0], gradients[1] = (0.5, 0.0), (-0.45, 0.0)
    bowl = np.eye(2)[None].repeat(5, axis=0)
    answers = FinalAnswers(names, np.full(5, 400.0), np.ones(5), gradients, bowl)
    found = influences(answers, np.zeros(2), np.zeros(2), squared=False, agreed=False)
    assert [site.apart for site in found] == [True, True, False, False, False]
    assert not any(site.named for site in found)
    sentence = apart_sentence(found)
    assert f"'a' ({found[0].change:.3g}), 'b' ({found[1].change:.3g})" in sentence
    assert influence_table(found).count("perhaps") == 2
    assert apart_sentence([replace(site, apart=False) for site in found]) == ""


def test_report_log_and_exit_status_name_the_site(tmp_path, monkeypatch, capsys):
    """Through the command's own function, with sites in this process in place of an engine."""
    shards = flipped(federation(seed=1))
    spec = replace(
        run_of("fednewton", SITES, strength=STRENGTH, intercept=False, rounds=12),
        home=tmp_path,
        out="run",
        gradient_tol=1e-6,
    )
    transport = Federation(shards, tmp_path, spec).transport
    monkeypatch.setattr(federation_commands, "read_experiment", lambda path: spec)
    monkeypatch.setattr(federation_commands, "open_transport", lambda spec, logs: contextlib.nullcontext(transport))
    console = Console(width=200)
    status = federation_commands.run_coordinator(
        tmp_path / "experiment.toml", resume=False, metrics_port=None, quiet=False, console=console
    )
    assert status == federation_commands.DECIDED == 3
    assert "site 'site-1' moves a coefficient by" in capsys.readouterr().out
    report = (tmp_path / "run" / "report.html").read_text()
    first = report.index("Site &#x27;site-1&#x27; decides this model")
    assert report.index("<h1>") < first < report.index("What was optimised")
    assert any(json.loads(line)["event"] == "decides" for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines())
    head, *lines = (tmp_path / "run" / "left_out.csv").read_text().splitlines()
    assert head.split(",")[2:] == [f"without site-{j}" for j in range(SITES)] and len(lines) == FEATURES
