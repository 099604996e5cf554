"""The last exchanges of the handshake, where a feature map needs them: the width of a kernel, and landmarks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedns.core.clients import Clients, on_client
from fedns.core.cohort import Cohort
from fedns.core.errors import MessageError
from fedns.core.messages import Message, Payload, wire
from fedns.core.shards import Shards
from fedns.methods.exchanges.landmarks import (
    DistanceHistogram,
    GroupMeans,
    LandmarkRequest,
    WidthRequest,
    distance_histogram,
    group_means,
    groups_per_weight,
    landmarks_from,
    width_from,
)
from fedns.models.maps.kernel_maps import KERNELS
from fedns.studies.design.agreement import Agreement
from fedns.studies.design.columns import Design
from fedns.studies.design.rows import columns_of
from fedns.studies.design.site_table import SMALLEST_COUNT
from fedns.studies.handshake.table_shards import agreement_in, letters_of, tables_of
from fedns.studies.study import Study
from fedns.studies.tables.feature_map import MapRule


class MapQuestion(Message):
    """The agreement so far, as JSON, and how many groups to make of a site's rows, relative to their number."""

    agreement: Payload = wire("letters", dtype="uint8")
    groups_per_weight: Payload = wire(dtype="float64")


@on_client(MapQuestion, DistanceHistogram)
def describe_distances(problem: Any, clients: Clients, request: MapQuestion) -> DistanceHistogram:
    """Tell how far apart a site's rows are, for the width of a kernel."""
    problem.before_rows_are_read()
    rule, _, over_columns = _before_the_map(clients, request)
    asked = WidthRequest(np.int32(KERNELS.index(rule.kernel)), np.int64(rule.seed))
    return distance_histogram(problem, over_columns, asked)


@on_client(MapQuestion, GroupMeans)
def describe_groups(problem: Any, clients: Clients, request: MapQuestion) -> GroupMeans:
    """Tell means over groups of a site's rows, for landmarks; no group is smaller than its owner's limit."""
    problem.before_rows_are_read()
    rule, smallest, over_columns = _before_the_map(clients, request)
    asked = LandmarkRequest(request.groups_per_weight, np.int64(smallest), np.int64(rule.seed))
    return group_means(problem, over_columns, asked)


def _before_the_map(clients: Clients, request: MapQuestion) -> tuple[MapRule, int, Clients]:
    """The rule of the map, the smallest group that all owners permit, and the clients over the formula's columns."""
    agreement, tables = agreement_in(request.agreement), tuple(tables_of(clients).values())
    rule = tables[0].study.feature_map
    if rule is None:
        raise MessageError("the study has no feature map")
    columns = [columns_of(Design(table.study, agreement), table) for table in tables]
    sizes = [len(rows) for rows in columns]
    shards = Shards.from_arrays(np.concatenate(columns), np.zeros(sum(sizes)), sizes, names=clients.shards.names)
    return rule, max(table.smallest_count for table in tables), replace(clients, shards=shards)


def ask_map(study: Study, agreement: Agreement, cohort: Cohort) -> Agreement:
    """Add the width and the landmarks of the feature map, where the study does not give them."""
    rule = study.feature_map
    if rule is None or not rule.asks:
        return agreement
    question = MapQuestion(agreement=letters_of(agreement.to_json()), groups_per_weight=groups_per_weight(rule.size, cohort))
    if not rule.width:
        agreement = replace(agreement, width=width_from(cohort.ask(describe_distances, question)))
    if rule.kind == "nystroem":
        found = landmarks_from(cohort.ask(describe_groups, question), rule.size, SMALLEST_COUNT, rule.seed)
        if found.shape[1] != len(Design(study, agreement).columns):
            raise MessageError("sites sent groups of other columns than those of the study")
        # Any points near the rows will do: four digits keep the description of the run small.
        rounded = tuple(tuple(float(f"{value:.4g}") for value in landmark) for landmark in found)
        agreement = replace(agreement, landmarks=rounded)
    return agreement
