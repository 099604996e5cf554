"""The race as one picture: a panel for each data set, a bar for each contender that reached the gap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def draw(all_results: dict[str, list[Any]], gap: float, path: Path) -> None:
    """Bars of milliseconds on a logarithmic scale, ours in another colour; who did not get there has none."""
    contenders = [result.contender for result in next(iter(all_results.values()))]
    figure = Figure(figsize=(3.2 * len(all_results) + 2, 0.3 * len(contenders) + 1.2), layout="constrained")
    panels = figure.subplots(1, len(all_results), sharey=True, squeeze=False)[0]
    for panel, (name, results) in zip(panels, all_results.items(), strict=True):
        for place, result in enumerate(results):
            if result.seconds is None:
                panel.text(0.02, place, result.failure[:34], fontsize=7, va="center", transform=panel.get_yaxis_transform())
            else:
                panel.barh(place, 1e3 * result.seconds, color="C0" if result.contender.package == "fedns" else "0.7")
        panel.set(title=name, xlabel=f"milliseconds to a gap of {gap:g}", xscale="log")
        panel.set_yticks(range(len(contenders)), [one.name for one in contenders])
    panels[0].invert_yaxis()
    figure.savefig(path)
