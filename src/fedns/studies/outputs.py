"""What a fit leaves behind: coefficients with their names, the model with where it came from, and pages to read."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedns.core.errors import DataError
from fedns.core.files import write_whole
from fedns.core.types import FloatArray
from fedns.runs.results import Results, coefficients_csv
from fedns.studies.design.site_table import HIDDEN
from fedns.studies.inference.estimates import KINDS, Inference
from fedns.studies.inference.fitted import StudyFit
from fedns.studies.pages import pages
from fedns.studies.site_lines import WHAT_LEFT_FILE

COEFFICIENTS_FILE, MODEL_FILE, REPORT_FILE = "coefficients.csv", "model.json", "report.html"
MODEL_FORMAT = 1
_FILES = (COEFFICIENTS_FILE, MODEL_FILE, REPORT_FILE, WHAT_LEFT_FILE)


def refuse_earlier_fit(folder: Path, *, overwrite: bool) -> None:
    """Raise, before a fit begins, where its results cannot be put there."""
    _results(folder).refuse(_FILES, overwrite=overwrite)


def write_fit(fit: StudyFit, folder: Path, kind: str = "model", *, overwrite: bool = False) -> Path:
    """All files, with standard errors of this kind; the path of the report. overwrite: in place of an earlier fit's."""
    refuse_earlier_fit(folder, overwrite=overwrite)
    tables = (
        fit_csv(fit, kind),
        json.dumps(model(fit), indent=1, ensure_ascii=False) + "\n",
        pages().report(fit, kind),
    )
    results = _results(folder)
    results.begin(_FILES)  # once there is something to write
    for name, text in zip((COEFFICIENTS_FILE, MODEL_FILE, REPORT_FILE), tables, strict=True):
        write_whole(folder / name, text, durable=False)
    about = f"{fit.study.title or fit.study.formula}, study {fit.study.digest}"
    pages().write_what_left(fit.site_lines, folder, about, results)
    return folder / REPORT_FILE


def _results(folder: Path) -> Results:
    return Results(folder, "fit")


def fit_csv(fit: StudyFit, kind: str = "model") -> str:
    """One line for each coefficient, its numbers empty where a column was left out."""
    design = fit.agreed.design
    columns = {column.name: column for column in design.columns}
    numbers = ("coefficient", "std_error", "statistic", "p_value", "low", "high")
    lines: list[dict[str, str | float]] = []
    for row in fit.rows(kind):
        one, name = design.parts_of(row.name)
        line: dict[str, str | float] = {"class": one, "name": name, "term": name}
        if name in columns:
            line |= {part: getattr(columns[name], part) for part in ("term", "level", "reference")}
        line |= {number: getattr(row, number) for number in numbers}
        if fit.inference is not None and fit.inference.family.ratio:
            line |= dict(zip(("ratio", "ratio_low", "ratio_high"), row.ratios, strict=True))
        lines.append(line)
    return coefficients_csv(lines, converged=fit.converged)


def model(fit: StudyFit) -> dict[str, Any]:
    """Everything that predicting, and checking where a model came from, needs."""
    last, further = fit.history.records[-1], fit.further_diagnostics
    return ({} if fit.converged else {"not_converged": fit.reason}) | {
        "fedns_model": MODEL_FORMAT,
        "study": fit.study.as_dict(),
        "study_digest": fit.study.digest,
        "schema": json.loads(fit.agreed.design.agreement.to_json()),
        "schema_digest": fit.agreed.design.agreement.digest,
        "references": fit.agreed.design.references,
        "coefficients": {
            name: None if math.isnan(value) else value
            for name, value in zip(fit.names, fit.coefficients.tolist(), strict=True)
        },
        "inference": None if fit.inference is None else _inference(fit, fit.inference),
        "baseline": {site: told.as_dict() for site, told in fit.baseline.items()},
        "diagnostics": _plain(fit.prediction.as_dict()) if not isinstance(fit.prediction, str) else None,
        **({"further_diagnostics": {name: _plain(one.as_dict()) for name, one in further.items()}} if further else {}),
        "left_out": [str(alias) for alias in fit.aliased],
        "ending": fit.ending.key,
        "reason": fit.reason,
        "newton_decrement": _plain(fit.newton_decrement),
        "notes": [
            *(f"question: {one}" for one in fit.questions),
            *fit.remarks,
            *fit.caveats,
            *fit.notes,
            *fit.prediction_notes,
        ],
        "provenance": {
            "method": fit.method,
            "rounds": last.round,
            "exchanges": last.exchanges,
            "uplink_bytes": fit.uplink_bytes,
            "downlink_bytes": fit.downlink_bytes,
            "objective": last.objective,
            "sites": [{"name": site.site, "rows": _told(site.used)} for site in fit.sites],
            "versions": pages().versions(),
        },
    }


def _inference(fit: StudyFit, inference: Inference) -> dict[str, Any]:
    """Covariances by kind, in the order of the coefficients that were not left out, and what else was found."""
    kept = ~np.isnan(fit.coefficients)
    covariances = {}
    for kind in KINDS:
        try:
            covariances[kind] = fit.covariance(kind)[np.ix_(kept, kept)].tolist()
        except DataError:
            continue  # what the sites did not tell
    found: dict[str, Any] = {
        "names": [name for name, there in zip(fit.names, kept, strict=True) if there],
        "statistic": inference.statistic_name(),
        "residual_df": inference.residual_df,
        "ratio": inference.family.ratio,
        "covariance": covariances,
    }
    if inference.sums is not None:
        own = fit.site_estimates
        arrays = own.coefficients, own.standard_errors, own.without
        found["dispersion"] = inference.dispersion
        found["goodness"] = _plain(asdict(fit.goodness))
        found["terms"] = _plain([asdict(test) for test in fit.term_tests()])
        found["heterogeneity"] = _plain([asdict(one) for one in fit.heterogeneity])
        found["sites"] = {
            site: {"coefficients": alone, "std_errors": errors, "without": rest}
            for site, alone, errors, rest in zip(own.sites, *map(_listed, arrays), strict=True)
        }
    return found


def _plain(value: Any) -> Any:
    """The same with null for every number that JSON has no word for."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _listed(rows: FloatArray) -> list[Any]:
    return [_plain(row) for row in rows.tolist()]


def _told(count: int) -> int | str:
    return "few" if count == HIDDEN else count
