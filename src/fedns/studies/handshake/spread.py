"""Columns that lie elsewhere at one site than at the others, and the factor that would explain it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedns.studies.handshake.table_summary import Moments, TableSummary
from fedns.studies.study import Study
from fedns.studies.tables.formula import Factor

FAR = 4.0  # means further apart than this many joint standard deviations stop a run
UNEQUAL = 6.0  # one spread this many times the other stops a run, wherever the means are
SUSPICIOUS = 1.5  # this many suffice where the factor between two units explains mean and spread
FACTORS = (
    (1000.0, "a thousand, as between g and mg"),
    (1e6, "a million, as between g and µg"),
    (100.0, "a hundred, as between a share and a percentage, or m and cm"),
    (10.0, "ten, as between mm and cm, or g/L and g/dL"),
    (18.0182, "18.0182, as between mmol/L and mg/dL of glucose"),
    (38.67, "38.67, as between mmol/L and mg/dL of cholesterol"),
    (88.5, "88.5, as between mg/dL and µmol/L of creatinine (88.42), or mmol/L and mg/dL of triglycerides (88.57)"),
    (2.54, "2.54, as between inches and centimetres"),
    (2.2046, "2.2046, as between kilograms and pounds"),
    (365.25, "365.25, as between years and days"),
    (12.0, "twelve, as between years and months"),
    (7.5006, "7.5006, as between kPa and mmHg"),
)
_CLOSE = 0.12  # how far, as a part of it, a ratio may be from a factor
_CLOSE_SPREAD = 0.5


def far_apart(study: Study, sites: Sequence[TableSummary]) -> list[str]:
    """A sentence for every column of a site that lies far from where most sites have it."""
    found = []
    columns = dict.fromkeys([study.parsed.outcome, *study.parsed.columns])
    for name in columns:
        known = [(summary.site, summary.moments[Factor(name)]) for summary in sites if Factor(name) in summary.moments]
        known = [(site, moments) for site, moments in known if moments.count]
        # Between columns of two values there is no unit; how they are coded is compared elsewhere.
        if len(known) < 2 or _is_pair(name, sites):
            continue
        # A column that is one value at a site says nothing of where it usually lies.
        varied = [entry for entry in known if entry[1].deviation > 0.0] or known
        middle_site, middle = sorted(varied, key=lambda entry: entry[1].mean)[(len(varied) - 1) // 2]
        for site, moments in known:
            if site in study.rule(name).differs_at:
                continue
            if moments.deviation == 0.0 and middle.deviation > 0.0:
                found.append(
                    f"column '{name}' has the value {moments.mean:g} in every row at site '{site}', and mean "
                    f"{middle.mean:.4g} and standard deviation {middle.deviation:.3g} at site '{middle_site}': does it mean "
                    f'missing? Take it out of the formula, or say that it is meant with differs_at = ["{site}"]'
                )
            elif site != middle_site:
                found += _compared(study, name, (site, moments), (middle_site, middle))
    return found


def _is_pair(name: str, sites: Sequence[TableSummary]) -> bool:
    return all(summary.columns[name].pair for summary in sites)


def _compared(study: Study, name: str, one: tuple[str, Moments], other: tuple[str, Moments]) -> list[str]:
    (site, here), (other_site, there) = one, other
    joint = math.hypot(here.deviation, there.deviation) / math.sqrt(2)
    distance = abs(here.mean - there.mean)
    factor = likely_factor(here, there)
    near = distance <= (SUSPICIOUS if factor else FAR) * joint or distance <= 1e-9 * max(abs(here.mean), abs(there.mean))
    spreads = sorted((here.deviation, there.deviation))
    if near and (spreads[0] == 0.0 or spreads[1] <= UNEQUAL * spreads[0]):
        return []
    unit = f" {study.rule(name).unit}" if study.rule(name).unit else ""
    why = f"the ratio is near {factor}" if factor else "no usual pair of units explains it"
    return [
        f"column '{name}' has mean {here.mean:.4g} and standard deviation {here.deviation:.3g} at site '{site}', and "
        f"{there.mean:.4g} and {there.deviation:.3g}{unit} at site '{other_site}': {why}; convert it, or say that it is "
        f'meant with differs_at = ["{site}"] for this column'
    ]


def likely_factor(here: Moments, there: Moments) -> str:
    """The factor between two units that would explain mean and spread of both, in words; "" if none would."""
    if here.mean * there.mean <= 0:
        return ""
    ratio = max(here.mean / there.mean, there.mean / here.mean)
    wide, narrow = (here, there) if abs(here.mean) > abs(there.mean) else (there, here)
    if not (wide.deviation > 0 and narrow.deviation > 0):
        return ""
    spread = wide.deviation / narrow.deviation
    fitting = [
        (abs(math.log(ratio / factor)), words)
        for factor, words in FACTORS
        if abs(ratio / factor - 1) <= _CLOSE and abs(math.log(spread / factor)) <= _CLOSE_SPREAD
    ]
    return min(fitting)[1] if fitting else ""  # the nearest: 88.5 is within reach of a hundred
