"""Digests of fits: every family of studies, every estimator, the files of a fit and the ledgers of sites that answer one.

Beside the digest of its bits a fit keeps its numbers, so that a change of bits can be told from a change of the answer.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from names import named

import fedns

Digest = dict[str, Any]
Table = dict[str, np.ndarray]
ROWS, SITES = 420, ("east", "north", "west")
EVENTS: dict[str, Any] = {"event": ("yes",), "non_event": ("no",)}
# By family: its outcome, and what its study says beside the formula.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gaussian": ("score", {}),
    "binomial": ("ill", EVENTS),
    "probit": ("ill", {**EVENTS, "family": "binomial", "link": "probit"}),
    "cloglog": ("ill", {**EVENTS, "family": "binomial", "link": "cloglog"}),
    "poisson": ("falls", {}),
    "negative_binomial": ("falls", {"parameters": {"dispersion": 0.7}}),
    "gamma": ("cost", {}),
    "cox": ("days", {**EVENTS, "status": "ill"}),
    "multinomial": ("grade", {}),
}
AGES = {"columns": {"age": fedns.ColumnRule(unit="years", range=(18.0, 110.0))}}
# What is added to the formula, and what the study says beside it.
SITUATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("", {}),
    "penalty": ("", {"strength": 1e-2}),
    "offset": (" + offset(log(time))", {}),
    "weights": ("", {"weights": "weight"}),
    "spline": (" + bs(age, df=4)", AGES),
    "interaction": (" + arm * dose", {}),
}
ANSWERS_OF_A_SITE = ("time", "run")  # of a line in its ledger: other in every run


def short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def table(seed: int) -> Table:
    """Rows with two numbers, a category, and an outcome for every family."""
    random = np.random.default_rng(seed)
    age, dose = random.normal(60, 9, ROWS).round(1).clip(20, 100), random.gamma(4.0, 25.0, ROWS).round(1)
    arm = random.choice(["high", "low", "placebo"], ROWS)
    margin = 0.04 * (age - 60) + 0.005 * (dose - 100) + 0.7 * (arm == "high") - 0.3
    return {
        "age": age,
        "dose": dose,
        "arm": arm,
        "time": random.uniform(0.5, 4.0, ROWS).round(2),
        "weight": random.integers(1, 5, ROWS),
        "ill": np.where(random.random(ROWS) < 1 / (1 + np.exp(-margin)), "yes", "no"),
        "score": (10 + 2 * margin + random.normal(0, 1, ROWS)).round(3),
        "falls": random.poisson(np.exp(0.5 * margin)),
        "cost": random.gamma(2.0, np.exp(margin) / 2.0).round(4) + 0.001,
        "days": np.ceil(random.exponential(90 * np.exp(-margin))),
        "grade": random.choice(["A", "B", "C"], ROWS, p=[0.5, 0.3, 0.2]),
    }


def written(folder: Path) -> dict[str, Path]:
    """A file of rows for each site."""
    paths = {}
    for seed, site in enumerate(SITES):
        columns = table(seed)
        paths[site] = folder / f"{site}.csv"
        with paths[site].open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(columns)
            lines.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    return paths


def studies() -> Iterator[tuple[str, Any]]:
    for name, (outcome, options) in FAMILIES.items():
        for situation, (added, further) in SITUATIONS.items():
            if situation == "offset" and name == "multinomial":
                continue
            settings = {"family": name, **options, **further}
            yield f"{name}, {situation}", fedns.Study(f"{outcome} ~ age + dose + arm{added}", **settings)
    for kind in ("fourier", "nystroem"):
        options = {**EVENTS, "feature_map": named("MapRule")(kind, 10, width=2.0), "strength": 1e-3}
        yield f"binomial, {kind} features", fedns.Study("ill ~ age + dose", "binomial", **options)
    for method in ("fedns:sketch=sjlt;sketch_size=64;line_search=aggregate", "auto", "lbfgs"):
        yield f"binomial, by {method}", fedns.Study("ill ~ age + dose + arm", "binomial", **EVENTS, method=method)


def errors_of(inference: Any, size: int) -> np.ndarray:
    """Standard errors, not numbers where there are none."""
    try:
        return np.asarray(inference.standard_errors())
    except (AttributeError, fedns.FednsError):
        return np.full(size, math.nan)


def of_fit(fit: Any) -> Digest:
    """Digests of the numbers of a fit, the numbers themselves, and how it got there."""
    errors = errors_of(fit.inference, len(fit.names))
    last = fit.history.records[-1]
    return {
        "coefficients": short(fit.coefficients.tobytes()),
        "errors": short(errors.tobytes()),
        "names": short(json.dumps(fit.names).encode()),
        "ending": fit.ending.key,
        "rounds": last.round,
        "uplink": fit.uplink_bytes,
        "values": [*fit.coefficients.tolist(), *errors.tolist()],
    }


def of_studies() -> Iterator[tuple[str, Digest]]:
    with tempfile.TemporaryDirectory() as folder:
        paths = written(Path(folder))
        for name, study in studies():
            try:
                yield f"study: {name}", of_fit(fedns.fit_study(study, paths))
            except fedns.FednsError as refusal:  # a sentence is a result, too
                yield f"study: {name}", {"refused": str(refusal).replace(folder, "")}


def of_estimators() -> Iterator[tuple[str, Digest]]:
    rows = [table(seed) for seed in range(len(SITES))]
    column = {name: np.concatenate([part[name] for part in rows]) for name in rows[0]}
    sites = np.repeat(SITES, ROWS)
    X = np.column_stack([(column["age"] - 60) / 9, (column["dose"] - 100) / 50, column["arm"] == "high"]).astype(float)
    ill, weight = np.where(column["ill"] == "yes", 1.0, -1.0), column["weight"].astype(float)
    for name, model, y in (
        ("logistic", fedns.FederatedLogisticRegression(), column["ill"]),
        ("logistic without penalty", fedns.FederatedLogisticRegression(C=math.inf), column["ill"]),
        ("multinomial", fedns.FederatedLogisticRegression(), column["grade"]),
        ("ridge", fedns.FederatedRidge(alpha=2.0), column["score"]),
        ("glm poisson", fedns.FederatedGLM("poisson"), column["falls"]),
        ("glm gamma", fedns.FederatedGLM("gamma", alpha=0.01), column["cost"]),
        ("glm probit", fedns.FederatedGLM("binomial", link="probit"), ill),
        ("cox", fedns.FederatedCox(), column["days"] * ill),
    ):
        for how, weights in (("", None), (", weights", weight)):
            fitted = model.fit(X, y, sites=sites, sample_weight=weights)
            numbers = np.concatenate([np.ravel(fitted.coef_), np.ravel(fitted.intercept_)])
            numbers = np.concatenate([numbers, errors_of(fitted.inference_, numbers.size)])
            yield (
                f"estimator: {name}{how}",
                {
                    "coefficients": short(numbers.tobytes()),
                    "rounds": fitted.history_.records[-1].round,
                    "uplink": fitted.meter_.uplink_bytes,
                    "values": numbers.tolist(),
                },
            )


def over_sites() -> Iterator[tuple[str, Digest]]:
    """The files of a fit, and what every site writes down of it, with the permissions that a site has by default."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        paths = {path.stem: path for path in named("write_example")(folder / "tables")}
        study = named("draft_study")({site: named("read_frame")(path) for site, path in paths.items()}).study
        named("write_fit")(fedns.fit_study(study, paths), folder / "fit")
        model = json.loads((folder / "fit" / "model.json").read_text(encoding="utf-8"))
        del model["provenance"]["versions"]
        yield "files: model.json", {"values": [*model["coefficients"].values()], **_parts(model)}
        for path in sorted((folder / "fit").glob("*.csv")):
            yield f"files: {path.name}", {"content": short(path.read_bytes())}
        policy = named("Policy")(patience_seconds=0.0)
        try:
            spec = named("ColumnRun")(sites=tuple(paths), policy=policy)
        except ImportError:  # an older version, of one class for all kinds
            spec = named("Spec")(sites=tuple(paths), methods=("fednewton",), loss="logistic", policy=policy)
        configs = {
            site: named("SiteConfig")(site, "flower", path.parent, named("DataSource")(path.name), f"state-{site}")
            for site, path in paths.items()
        }
        services = {site: named("site_service")(config).answer for site, config in configs.items()}
        fit = named("fit_federation")(study, spec, InProcess(services), folder / "run")
        yield "sites: fit", of_fit(fit)
        for site, config in configs.items():
            lines = (config.folder / config.state / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
            entries = [json.loads(line) for line in lines]
            plain = [{key: value for key, value in entry.items() if key not in ANSWERS_OF_A_SITE} for entry in entries]
            sent = sum(entry["bytes"] for entry in entries if entry["direction"] == "uplink")
            yield f"sites: ledger of {site}", {"ledger": short(json.dumps(plain).encode()), "uplink": sent}


def _parts(model: Mapping[str, Any]) -> Digest:
    """A digest of every part of a model's file."""
    return {name: short(json.dumps(part, sort_keys=True).encode()) for name, part in model.items()}


class InProcess(named("Transport")):  # type: ignore[misc]
    """Carries packets to services in this process."""

    def __init__(self, services: Mapping[str, Any]) -> None:
        self.services = dict(services)

    def connected(self) -> list[str]:
        return list(self.services)

    def exchange(self, requests: Mapping[str, bytes], timeout_seconds: float) -> Iterator[Any]:
        for site, request in requests.items():
            yield named("Arrival")(site, self.services[site](request))

    def close(self) -> None:
        """Hold nothing."""


def of_fits() -> Iterator[tuple[str, Digest]]:
    yield from of_studies()
    yield from of_estimators()
    yield from over_sites()
