"""A fitted study: the coefficients with their names, what they are worth, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from fedns.core.errors import ConfigError, DataError
from fedns.core.history import History
from fedns.core.messages.ledger import LedgerEntry, Meter
from fedns.core.termination import Ending
from fedns.core.types import FloatArray
from fedns.studies.design.aliases import Alias, kept_places
from fedns.studies.design.columns import term_of
from fedns.studies.diagnostics.by_site import Diagnosed
from fedns.studies.handshake.handshake import Agreed
from fedns.studies.handshake.table_summary import TableSummary
from fedns.studies.inference.estimates import Inference
from fedns.studies.inference.goodness import Goodness, goodness
from fedns.studies.inference.opposite import UNTOLD, opposites, orders_of, questions
from fedns.studies.inference.sites import Heterogeneity, SiteEstimates, heterogeneity, site_estimates
from fedns.studies.inference.table import (
    Row,
    aligned_lines,
    aligned_pairs,
    by_class,
    class_title,
    coefficient_text,
    goodness_pairs,
    reference_pairs,
    rows_of,
    term_lines,
)
from fedns.studies.inference.terms import LikelihoodRatio, TermTest, likelihood_ratio, term_tests
from fedns.studies.pages import pages
from fedns.studies.questions.baseline import SiteHazard
from fedns.studies.questions.gradients import Without
from fedns.studies.site_lines import SiteLines
from fedns.studies.study import Study


@dataclass(frozen=True, eq=False)
class StudyFit:
    """A fitted study. Coefficients are on the original scale of every column.

    Standard errors are of a kind: "model", "HC0" and "HC1" (robust), or "site" (clustered by site). A fit that has not
    converged has none, and no p values, since nobody knows what coefficients that are not the maximum's are worth. Whoever
    wants to see them all the same asks for `although_unconverged()`.
    """

    study: Study
    names: tuple[str, ...]
    coefficients: FloatArray  # (names,), NaN for a column that was left out
    aliased: tuple[Alias, ...]
    notes: tuple[str, ...]
    ending: Ending
    reason: str  # why it ended, in a sentence
    newton_decrement: float  # at the coefficients, in units of standard errors
    history: History
    agreed: Agreed
    method: str
    num_rows: int
    meter: Meter  # of everything: handshake, rounds, the two looks at the Hessian, and the sums for inference
    worked_out: Inference | None = None  # None where a site refused the last look at the Hessian
    without: Without | None = None  # the models of all sites but one, where there are several and the fit has converged
    baseline: Mapping[str, SiteHazard] = field(default_factory=dict)  # of family cox, by site
    diagnosed: Mapping[str, Diagnosed | str] = field(default_factory=dict)  # how it predicts, or why that is not known
    site_lines: SiteLines = field(default_factory=SiteLines)  # every message that left a site
    shows_unconverged: bool = False  # somebody has asked for standard errors of a fit that has not converged
    caveats: tuple[str, ...] = ()  # why this is not the answer that all rows in one place would give

    @property
    def converged(self) -> bool:
        return self.ending.converged

    @property
    def inference(self) -> Inference | None:
        """The worth of the coefficients; None where that is not known, or where they are not those of the maximum."""
        return self.worked_out if self.converged or self.shows_unconverged else None

    def although_unconverged(self) -> StudyFit:
        """The same fit with standard errors, p values and intervals also where it has not converged."""
        return replace(self, shows_unconverged=True)

    @property
    def first_line(self) -> str:
        """Say what a reader must know before anything else; nothing of a fit that has converged."""
        return "" if self.converged else f"not converged: {self.reason}"

    @property
    def sites(self) -> tuple[TableSummary, ...]:
        return self.agreed.summaries

    @property
    def ledger(self) -> list[LedgerEntry]:
        return self.meter.ledger

    @property
    def uplink_bytes(self) -> int:
        return self.meter.uplink_bytes

    @property
    def downlink_bytes(self) -> int:
        return self.meter.downlink_bytes

    def __getitem__(self, name: str) -> float:
        """The coefficient of this name."""
        if name not in self.names:
            raise KeyError(f"there is no coefficient '{name}': there are {', '.join(self.names)}")
        return float(self.coefficients[self.names.index(name)])

    def covariance(self, kind: str = "model") -> FloatArray:
        """The covariance of the coefficients: (names, names)."""
        return self._known().covariance(kind)

    def standard_errors(self, kind: str = "model") -> FloatArray:
        """(names,)."""
        return self._known().standard_errors(kind)

    def conf_int(self, level: float = 0.95, kind: str = "model") -> FloatArray:
        """Lower and upper ends of the intervals: (names, 2)."""
        return self._known().intervals(level, kind)

    def rows(self, kind: str = "model", level: float = 0.95) -> tuple[Row, ...]:
        """The table of coefficients; without standard errors where there are none."""
        try:
            return rows_of(self._known(), kind, level)
        except DataError:
            return tuple(Row(name, float(value)) for name, value in zip(self.names, self.coefficients, strict=True))

    @cached_property
    def goodness(self) -> Goodness:
        """Likelihood, deviance, information criteria, R², and the test of the whole model."""
        design = self.agreed.design
        return goodness(self._known(), design.outputs if design.intercept else 0)

    @cached_property
    def site_estimates(self) -> SiteEstimates:
        """Estimates of every site alone, one Newton step from the joint estimate, and of all others without it."""
        return site_estimates(self._known(), [site.site for site in self.sites], self.without)

    @cached_property
    def heterogeneity(self) -> tuple[Heterogeneity, ...]:
        """Cochran's Q and I² of every coefficient over sites."""
        return heterogeneity(self._known(), self.site_estimates)

    @cached_property
    def questions(self) -> tuple[str, ...]:
        """The questions to ask before believing the fit: whether a site's outcome is coded the other way."""
        if self.inference is None or self.inference.sums is None or self.without is None:
            return ()
        orders = orders_of(self.study.distribution.outcomes, self.prediction, [site.site for site in self.sites])
        design = self.agreed.design
        if orders is UNTOLD or design.feature_map is not None:
            return ()
        kept = [design.names[design.places[fitted]] for fitted in kept_places(design, self.aliased)]
        slopes = [place for place, name in enumerate(kept) if not design.is_intercept(name)]
        names = [site.site for site in self.sites]
        return questions(opposites(self.inference, self.without, names, slopes, orders), names)

    @property
    def prediction(self) -> Diagnosed | str:
        """The first of the diagnostics, which every fit has, or why it is not there."""
        return next(iter(self.diagnosed.values()), "")

    @property
    def further_diagnostics(self) -> dict[str, Diagnosed]:
        """Diagnostics that other packages have brought, by name."""
        rest = list(self.diagnosed.items())[1:]
        return {name: found for name, found in rest if not isinstance(found, str)}

    @property
    def diagnostics(self) -> Any:
        """Figures on how the model predicts, at every site, in all, and held out.

        Diagnostics (calibration, ROC with its area, residuals), of several classes ClassDiagnostics with one for each, of
        times TimeDiagnostics with the concordance.
        """
        if isinstance(self.prediction, str):
            raise DataError(f"how the model predicts is not known: {self.prediction or self.reason}")
        return self.prediction

    def term_tests(self, kind: str = "model") -> tuple[TermTest, ...]:
        """Wald's test and the variance inflation of every term."""
        terms: dict[str, list[str]] = {}
        for name in self.names:
            terms.setdefault(term_of(self.agreed.design, name), []).append(name)
        return term_tests(self._known(), terms, kind)

    def compared_with(self, smaller: StudyFit) -> LikelihoodRatio:
        """The likelihood-ratio test (F where the dispersion is estimated) of a fit without some of the terms."""
        if not set(smaller.names) < set(self.names) or smaller.study.family != self.study.family:
            raise ConfigError("the smaller fit must have some of the coefficients of this one, and the same family")
        if self._known().weight != smaller._known().weight:
            raise ConfigError("the two fits are on different rows: set missing so that both use the same")
        return likelihood_ratio(smaller._known(), self._known())

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences on what could not be found out, and why."""
        if self.inference is None:
            return (self._missing,)
        try:
            self.standard_errors()
        except DataError as error:
            return (str(error),)
        return tuple(self.inference.remarks()[1:])

    @property
    def prediction_notes(self) -> tuple[str, ...]:
        """Sentences on what is not known of how the model predicts."""
        notes: list[str] = []
        for found in self.diagnosed.values():
            refused = f"how the model predicts is not known: {found}"
            notes += ([refused] if found else []) if isinstance(found, str) else found.notes
        return tuple(notes)

    def summary(self, kind: str = "model", level: float = 0.95) -> str:
        """The table a statistician knows, as text."""
        rows = self.rows(kind, level)
        ratio = "" if self.inference is None else self.inference.family.ratio
        statistic = "z" if self.inference is None else self.inference.statistic_name(kind)
        rest = f"{self.study.family}, {self.num_rows} rows of {len(self.sites)} sites, {self.method}"
        first = [f"question: {one}" for one in self.questions] if self.converged else [self.first_line, ""]
        lines = [*first, f"{self.study.formula}   {rest}"]
        for one, part in by_class(self.agreed.design, rows):
            lines += ["", *([class_title(self.agreed.design, one)] if one else [])]
            lines += coefficient_text(part, statistic, level, ratio)
        lines += ["", *aligned_pairs(reference_pairs(self.agreed.design))]
        if self.inference is not None and self.inference.sums is not None:
            lines += aligned_pairs(goodness_pairs(self.goodness))
            terms = term_lines(self.term_tests(kind))
            lines += [*terms, *([""] if terms else [])]
        for found in self.diagnosed.values():
            lines += [] if isinstance(found, str) else [*aligned_lines(found.table()), ""]
        remarks = self.remarks if self.inference is None else tuple(self.inference.remarks(kind))
        lines += [f"note: {note}" for note in (*remarks, *self.caveats, *self.notes, *self.prediction_notes)]
        return "\n".join([*lines, *([f"converged: {self.reason}"] if self.converged else [])])

    def to_frame(self, kind: str = "model", level: float = 0.95) -> Any:
        """The table of coefficients as a pandas frame, by name."""
        try:
            import pandas as pd
        except ImportError:
            raise ConfigError("to_frame needs pandas: install it, or use rows()") from None
        rows = self.rows(kind, level)
        columns = ("coefficient", "std_error", "statistic", "p_value", "low", "high")
        values = {column: [getattr(row, column) for row in rows] for column in columns}
        return pd.DataFrame(values, index=pd.Index(self.names, name="name"))

    def _repr_html_(self) -> str:
        """The table for a notebook."""
        found: str = pages().notebook(self)
        return found

    @property
    def _missing(self) -> str:
        """The reason why there are no standard errors."""
        if self.worked_out is None:
            return f"there are no standard errors: {self.reason}"
        return (
            "there are no standard errors, since the fit has not converged: give it more rounds, or see them all the same "
            "with fit.although_unconverged(), on the command line with --unconverged"
        )

    def _known(self) -> Inference:
        if self.inference is None:
            raise DataError(self._missing)
        return self.inference
