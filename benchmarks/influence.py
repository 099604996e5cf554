"""How often a poisoned site is named, over simulated federations of several sizes: python benchmarks/influence.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit

from fedns.federation.coordinator.influence import FinalAnswers, SiteInfluence, influences

STRENGTH, REPEATS = 1e-3, 20
FEDERATIONS = [  # sites, rows of each, features, and how unlike the sites are
    (3, 200, 10, 0.0), (3, 1000, 10, 0.0), (5, 300, 20, 0.0), (10, 200, 15, 0.0), (4, 300, 10, 0.3), (5, 400, 10, 1.0),
]  # fmt: skip
Array = np.ndarray
Site = Callable[[Array], tuple[float, Array, Array]]  # loss, gradient and Hessian at a point


def honest(rows: Array, labels: Array) -> Site:
    def answer(w: Array) -> tuple[float, Array, Array]:
        margins = labels * (rows @ w)
        wrong = expit(-margins)
        hessian = (rows.T * (wrong * (1 - wrong))) @ rows / len(rows)
        return float(np.logaddexp(0, -margins).mean()), -(rows.T @ (labels * wrong)) / len(rows), hessian

    return answer


def poisoned(kind: str, rows: Array, labels: Array) -> tuple[Site, int]:
    """A site's answers and the rows that it states."""
    true, count = honest(rows, labels), len(rows)
    bowl = true(np.zeros(rows.shape[1]))[2]
    sites: dict[str, tuple[Site, int]] = {
        "honest": (true, count),
        "labels flipped": (honest(rows, -labels), count),
        "all 10 times": (lambda w: tuple(10 * x for x in true(w)), count),
        "gradient 10 times": (lambda w: (true(w)[0], 10 * true(w)[1], true(w)[2]), count),
        "sign flipped": (lambda w: (true(w)[0], -true(w)[1], true(w)[2]), count),
        "drawn to 1": (lambda w: (0.5 * (w - 1) @ bowl @ (w - 1), bowl @ (w - 1), bowl), count),
        "drawn to 0.3": (lambda w: (0.5 * (w - 0.3) @ bowl @ (w - 0.3), bowl @ (w - 0.3), bowl), count),
        "rows 10 times": (true, 10 * count),
        "rows 100 times": (true, 100 * count),
    }
    return sites[kind]


KINDS = ("honest", "labels flipped", "all 10 times", "gradient 10 times", "sign flipped", "drawn to 1", "drawn to 0.3")
KINDS += ("rows 10 times", "rows 100 times")


def fit(sites: list[Site], rows: Array, features: int) -> tuple[Array, list[tuple[float, Array, Array]]]:
    shares, w = rows / rows.sum(), np.zeros(features)
    for _ in range(60):
        answers = [site(w) for site in sites]
        gradient = sum(p * a[1] for p, a in zip(shares, answers, strict=True)) + STRENGTH * w
        hessian = sum(p * a[2] for p, a in zip(shares, answers, strict=True)) + STRENGTH * np.eye(w.size)
        step = np.linalg.solve(hessian, gradient)
        w = w - step * min(1.0, 2.0 / max(float(np.linalg.norm(step)), 1e-9))
        if np.linalg.norm(step) < 1e-10:
            break
    return w, [site(w) for site in sites]


def one(
    kind: str, sites: int, count: int, features: int, unlike: float, draw: np.random.Generator
) -> tuple[float, SiteInfluence, bool]:
    """By how many standard errors the first site moves the model, what is said of it, and whether another is named."""
    truth, data = 0.7 * draw.normal(size=features), []
    for _ in range(sites):
        rows = draw.normal(size=(count, features)) + 0.5 * unlike * draw.normal(size=features)
        own = truth + 0.3 * unlike * draw.normal(size=features)
        data.append((rows, np.where(draw.random(count) < expit(rows @ own), 1.0, -1.0)))
    clean = [honest(*table) for table in data]
    before, answers = fit(clean, np.full(sites, float(count)), features)
    hessian = sum(answer[2] for answer in answers) / sites + STRENGTH * np.eye(features)
    errors = np.sqrt(np.diag(np.linalg.inv(hessian)) / (sites * count))
    first, stated = poisoned(kind, *data[0])
    everyone, totals = [first, *clean[1:]], np.array([stated, *[count] * (sites - 1)], dtype=float)
    after, answers = fit(everyone, totals, features)
    growths = np.array([(site(after)[1] - site(np.zeros(features))[1]) @ after for site in everyone])
    losses, gradients, curvatures = (np.array(part) for part in zip(*answers, strict=True))
    final = FinalAnswers([str(j) for j in range(sites)], totals, losses, gradients, curvatures, growths)
    found = influences(final, after, np.full(features, STRENGTH), squared=False, agreed=False)
    moved = float(np.max(np.abs(after - before) / errors))
    return moved, found[0], any(site.named for site in found[1:])


def main() -> None:
    draw = np.random.default_rng(0)
    print("| the site | moves a coefficient by a standard error, of 120 | named of these | among several | another named |")
    print("|---|---|---|---|---|")
    for kind in KINDS:
        results = [one(kind, *federation, draw) for federation in FEDERATIONS for _ in range(REPEATS)]
        said = [found for moved, found, _ in results if moved > 1.0 or kind == "honest"]
        named, apart = sum(bool(found.named) for found in said), sum(found.apart for found in said)
        moving = "none" if kind == "honest" else len(said)
        print(f"| {kind} | {moving} | {named} | {apart} | {sum(other for *_, other in results)} |", flush=True)


if __name__ == "__main__":
    main()
