"""The influence of each site on the model, in the words and tables of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedns.core.files import write_csv
from fedns.federation.coordinator.influence import LEFT_OUT_FILE, SiteInfluence
from fedns.reports.page import html_table, paragraph

_HEADINGS = ["site", "share", "change without it", "over chance", "distance", "growth", "decides"]
_NOTES = (
    "Share: of the weight, or of the curvature where that is more. Change: of the coefficient that leaving the site out "
    "would move most, in standard errors of the others' model, by one Newton step; and the same over what chance would "
    "give. Distance: of its gradient from the sites' median in the metric of the Hessian, about 1 by chance. Growth: of its "
    "gradient from the start of the run to its end, over the median site's. A dash: the method sends no curvature."
)


def deciding_sentence(site: SiteInfluence) -> str:
    """The sentence at the top of a report about a site that decides the model."""
    return f"Site '{site.name}' decides this model: it {site.named}. Ask it why before the model is used."


def apart_sentence(influences: Sequence[SiteInfluence]) -> str:
    """The sentence where sites differ so much that none of them stands out; nothing where they do not."""
    farthest_first = sorted(influences, key=lambda site: -(site.distance or 0.0))
    apart = [f"'{site.name}' ({site.change:.3g})" for site in farthest_first if site.apart]
    if not apart:
        return ""
    return (
        "The sites differ by more than chance, and none stands out. Leaving one out would move a coefficient by this many "
        f"standard errors: {', '.join(apart)}. Ask these sites why before the model is used."
    )


def influence_table(influences: Sequence[SiteInfluence]) -> str:
    """A row for every site."""
    if not influences:
        return "<p>Not known: no round was made since the run was resumed.</p>"
    rows = []
    for site in influences:
        measures = [_number(value) for value in (site.change, site.chance, site.distance, site.growth)]
        decides = "yes" if site.named else "perhaps" if site.apart else "no"
        rows.append([site.name, f"{100 * site.share:.3g} %", *measures, decides])
    table = html_table(_HEADINGS, rows, text_columns={0, 6})
    return table + paragraph(f"{_NOTES} The others' coefficients are in {LEFT_OUT_FILE}.")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def write_left_out(folder: Path, coefficients: Mapping[str, float], influences: Sequence[SiteInfluence]) -> None:
    """The coefficients by name, and beside each what it would be without each site."""
    known = {site.name: site.without for site in influences if site.without is not None}
    rows = zip(coefficients.items(), *known.values(), strict=True)
    lines = [[name, value, *map(float, without)] for (name, value), *without in rows]
    write_csv(folder / LEFT_OUT_FILE, [["name", "coefficient", *(f"without {site}" for site in known)], *lines])
