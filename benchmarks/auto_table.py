"""The tables behind docs/auto.md, from the runs of benchmarks/auto.py: ranges over splits of means over seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

PLACE = ("half", "data", "clients")
# A table for each promise: its title and columns.
TABLES = {
    "`bytes` to a gap of 1e-10": (
        "seeds",
        "rounds",
        "exchanges",
        "bytes up",
        "bytes down",
        "best other, bytes up",
        "ratio",
        "FedNS / `bytes`",
    ),
    "`bytes` to a gap of 1e-6": ("rounds", "bytes up", "ratio"),
    "`rounds` beside FedNewton": ("rounds above", "bytes / its"),
    "`balanced`": (
        "rounds / of `rounds`",
        "bytes / of `bytes`",
        "exchanges",
        "within 1.5 of both",
        "nearest fixed setting: rounds",
        "bytes",
        "within 1.5 of both ",
    ),
}
WITHIN = 1.505
NAMES = {"giant": "GIANT", "lbfgs": "L-BFGS", "fednewton": "FedNewton", "fednl": "FedNL", "fedndes": "FedNDES"} | {
    "fednlbc": "FedNL-BC",
    "fedns": "FedNS",
    "scaffold": "SCAFFOLD",
}
Hits = dict[str, Any]  # by method, the means over seeds of rounds, exchanges, bytes up and bytes down


class Place(NamedTuple):
    """One split of one data set over so many clients."""

    hits: Hits
    early: Hits  # the same to the larger gap
    seeds: int

    @property
    def others(self) -> dict[str, float]:
        return {name: hit[2] for name, hit in self.hits.items() if name in NAMES}

    def ratio(self, hits: Hits) -> float | None:
        sent = [hit[2] for name, hit in hits.items() if name in NAMES]
        return hits["auto bytes"][2] / min(sent) if sent and "auto bytes" in hits else None

    def newton(self) -> tuple[float, float] | None:
        ours, newton = self.hits.get("auto rounds"), self.hits.get("fednewton")
        return None if ours is None or newton is None else (ours[0] - newton[0], ours[2] / newton[2])

    def both(self, name: str) -> tuple[float, float] | None:
        """Rounds in those of `rounds`, and bytes in those of `bytes`."""
        hit, rounds, least = (self.hits.get(which) for which in (name, "auto rounds", "auto bytes"))
        return None if hit is None or rounds is None or least is None else (hit[0] / rounds[0], hit[2] / least[2])

    def nearest(self) -> tuple[float, float] | None:
        """The same for the fixed setting whose larger ratio is the least."""
        found = [self.both(name) for name in self.hits if name.startswith("frontier")]
        return min((pair for pair in found if pair), key=max, default=None)


def lines(cells: list[dict[str, Any]], halves: dict[str, str]) -> Iterator[str]:
    """The tables, one after the other."""
    runs: dict[Any, dict[Any, dict[str, list[Any]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for cell in cells:
        runs[cell["data"], cell["clients"]][cell["split"]][cell["method"]].append((cell["1e-10"], cell["1e-06"]))
    for title, parts in zip(TABLES, (least_bytes, early_bytes, beside_newton, both_counted), strict=True):
        yield from (f"### {title}", "", *row([*PLACE, *TABLES[title]]), "|---" * (len(PLACE) + len(TABLES[title])) + "|")
        for data, half in halves.items():
            for clients in sorted((c for name, c in runs if name == data), key=lambda c: c or 0):
                places = [place(methods) for methods in runs[data, clients].values() if "auto bytes" in methods]
                if places:
                    yield from row([half, data, str(clients or "its own"), *parts(places)])
        yield ""


def row(texts: list[str]) -> list[str]:
    return ["| " + " | ".join(texts) + " |"]


def place(methods: dict[str, list[Any]]) -> Place:
    """Means over seeds; a method that did not get there with every seed is left out."""
    hits, early = (
        {
            name: np.mean([both[gap] for both in found], axis=0)
            for name, found in methods.items()
            if all(b[gap] for b in found)
        }
        for gap in (0, 1)
    )
    return Place(hits, early, len(methods["auto bytes"]))


def least_bytes(places: list[Place]) -> Iterator[str]:
    ours = [place.hits["auto bytes"] for place in places if "auto bytes" in place.hits]
    failed = len(places) - len(ours)
    yield span([place.seeds for place in places], 0)
    for measure in range(4):
        yield span([hit[measure] for hit in ours], 0) + (f", {failed} splits fail" if failed else "")
    best = [min(place.others.items(), key=lambda item: item[1]) for place in places if place.others]
    yield f"{span([sent for _, sent in best], 0)} ({', '.join(dict.fromkeys(NAMES[name] for name, _ in best))})"
    yield span(place.ratio(place.hits) for place in places)
    yield span(p.others["fedns"] / p.hits["auto bytes"][2] for p in places if "fedns" in p.others and "auto bytes" in p.hits)


def early_bytes(places: list[Place]) -> Iterator[str]:
    early = [place.early["auto bytes"] for place in places if "auto bytes" in place.early]
    yield from (span([hit[0] for hit in early], 0), span([hit[2] for hit in early], 0))
    yield span(place.ratio(place.early) for place in places)


def beside_newton(places: list[Place]) -> Iterator[str]:
    yield from pairs([place.newton() for place in places], (1, 2))


def both_counted(places: list[Place]) -> Iterator[str]:
    found, fixed = [place.both("auto balanced") for place in places], [place.nearest() for place in places]
    yield from pairs(found, (2, 2))
    yield span([place.hits["auto balanced"][1] for place in places if "auto balanced" in place.hits], 0)
    yield within(found)
    yield from (*pairs(fixed, (2, 2)), within(fixed))


def within(values: list[tuple[float, float] | None]) -> str:
    known = [pair for pair in values if pair]
    return f"{sum(max(pair) <= WITHIN for pair in known)} of {len(known)}" if known else "-"


def span(values: Iterable[float | None], digits: int = 2) -> str:
    """The least and the largest in words, one of them where they read the same, a dash where there is none."""
    known = [value for value in values if value is not None]
    texts = dict.fromkeys(f"{value:.{digits}f}" for value in (min(known), max(known))) if known else ["-"]
    return " to ".join(texts)


def pairs(values: list[tuple[float, float] | None], digits: tuple[int, int]) -> tuple[str, str]:
    known = [pair for pair in values if pair]
    first, second = (span([pair[i] for pair in known], digits[i]) if known else "-" for i in (0, 1))
    return first, second
