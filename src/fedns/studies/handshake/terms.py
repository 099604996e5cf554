"""The second exchange, where transforms ask for it: quantiles and powers, from which all sites make the same columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedns.core.clients import Clients, on_client
from fedns.core.cohort import Cohort
from fedns.core.errors import DataError
from fedns.core.messages import Message, Payload, as_batch, wire
from fedns.core.types import FloatArray
from fedns.studies.design.agreement import Agreement
from fedns.studies.design.rows import filled_numbers
from fedns.studies.design.site_table import SiteTable
from fedns.studies.handshake.table_shards import agreement_in, each_reply, letters_of, tables_of
from fedns.studies.study import Study
from fedns.studies.tables.formula import Factor
from fedns.studies.tables.transforms import PROBABILITIES, SiteFacts


class TermQuestion(Message):
    """The agreement so far, as JSON: centres and levels."""

    agreement: Payload = wire("letters", dtype="uint8")


class TermFacts(Message):
    """What transforms need to know: smoothed quantiles, and mean powers of centred columns."""

    rows: Payload = wire(dtype="int64", discloses="count")
    quantiles: Payload = wire("splines", "probabilities", dtype="float64", discloses="moments")
    powers: Payload = wire("polynomials", "orders", dtype="float64", discloses="moments")


@on_client(TermQuestion, TermFacts)
def describe_terms(problem: Any, clients: Clients, request: TermQuestion) -> TermFacts:
    """Tell what the study's transforms ask for."""
    problem.before_rows_are_read()
    agreement, found = agreement_in(request.agreement), []
    for site, table in tables_of(clients).items():
        try:
            found.append(_facts(agreement, table))
        except DataError as error:
            raise DataError(f"site '{site}': {error}") from None
    return as_batch(found)


def _facts(agreement: Agreement, table: SiteTable) -> TermFacts:
    """One site's facts; refused where it has too few rows for that."""
    rows, (quantiled, powered) = int(table.used.sum()), _asking(table.study)
    if rows < table.smallest_count:
        raise DataError(f"{rows} rows are too few to tell quantiles or powers of")
    quantiles = [_smoothed(filled_numbers(agreement, table, factor.column), table.smallest_count) for factor in quantiled]
    orders = 1 + max((factor.transform.highest_power for factor in powered), default=0)
    powers = []
    for factor in powered:
        known = agreement.known(factor)
        values = (filled_numbers(agreement, table, factor.column) - known.mean) / known.deviation
        powers.append([float(np.mean(values**order)) for order in range(orders)])
    return TermFacts(
        rows=np.int64(rows),
        quantiles=np.array(quantiles).reshape(len(quantiled), PROBABILITIES.size),
        powers=np.array(powers).reshape(len(powered), orders),
    )


def _asking(study: Study) -> tuple[list[Factor], list[Factor]]:
    """Factors whose transforms ask for quantiles, and those that ask for powers."""
    factors = study.parsed.factors
    return [f for f in factors if f.transform.asks_quantiles], [f for f in factors if f.transform.highest_power]


def asks_more(study: Study) -> bool:
    """Whether sites are asked for more than descriptions before rows can be coded."""
    return any(_asking(study)) or (study.feature_map is not None and study.feature_map.asks)


def ask_terms(study: Study, agreement: Agreement, cohort: Cohort) -> Agreement:
    """Ask sites for what transforms need, where they need something, and add what follows to the agreement."""
    replies = []
    if any(_asking(study)):
        replies = each_reply(cohort.ask(describe_terms, TermQuestion(agreement=letters_of(agreement.to_json()))))
    return learn(study, agreement, replies)


def learn(study: Study, agreement: Agreement, replies: list[TermFacts]) -> Agreement:
    """Let transforms learn from the facts of all sites, of which there may be none where nothing is asked."""
    quantiled, powered = _asking(study)
    found = {}
    for factor in study.parsed.factors:
        if factor.transform.numbered:
            facts = [
                SiteFacts(int(r.rows), _row_of(r.quantiles, quantiled, factor), _row_of(r.powers, powered, factor))
                for r in replies
            ]
            bounds = study.rule(factor.column).range
            found[factor.text] = factor.transform.learn(factor.column, bounds, agreement.known(factor), facts)
    return agreement.with_learned(found)


def _row_of(table: FloatArray, asking: list[Factor], factor: Factor) -> FloatArray:
    return table[asking.index(factor)] if factor in asking else np.empty(0)


def _smoothed(values: FloatArray, count: int) -> FloatArray:
    """Quantiles, each as the mean of `count` neighbouring rows: none is a value of one row."""
    ordered = np.sort(values)
    means = np.convolve(ordered, np.full(count, 1.0 / count), mode="valid")
    return np.asarray(np.quantile(means, PROBABILITIES))
