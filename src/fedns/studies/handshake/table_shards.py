"""The tables of sites as what a run is over, before there is anything to compute with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedns.core.clients import Clients
from fedns.core.errors import DataError
from fedns.core.messages import batch_size, split_batch
from fedns.core.shards import Shards
from fedns.studies.design.agreement import Agreement
from fedns.studies.design.site_table import SiteTable


@dataclass(frozen=True, eq=False)
class TableShards(Shards):
    """The tables of one or many clients; as rows, the numbers that a study could take from them."""

    tables: tuple[SiteTable, ...] = ()  # one per client

    @classmethod
    def of(cls, tables: Mapping[str, SiteTable]) -> TableShards:
        """The tables of sites, by name."""
        plain = Shards.from_arrays(
            np.concatenate([table.numbers for table in tables.values()]),
            np.concatenate([table.row_marks for table in tables.values()]),
            [table.frame.num_rows for table in tables.values()],
        )
        names = tuple(tables)
        return cls(plain.rows, plain.targets, plain.starts, plain.stops, names=names, tables=tuple(tables.values()))

    def select(self, clients: ArrayLike) -> TableShards:
        chosen = np.asarray(clients, dtype=np.int64)
        tables = tuple(self.tables[client] for client in chosen)
        names = tuple((self.names or ())[client] for client in chosen)
        return replace(self, starts=self.starts[chosen], stops=self.stops[chosen], names=names, tables=tables)


def tables_of(clients: Clients) -> dict[str, SiteTable]:
    """The tables of these clients, by name."""
    if not isinstance(clients.shards, TableShards):
        raise DataError("this run is over design rows: a table is described before it begins")
    return dict(zip(clients.shards.names or (), clients.shards.tables, strict=True))


def letters_of(text: str) -> Any:
    """A text as bytes that a message can carry."""
    return np.frombuffer(text.encode(), dtype=np.uint8)


def text_of(letters: Any) -> str:
    """The text of a message."""
    return bytes(letters).decode(errors="replace")


def agreement_in(letters: Any) -> Agreement:
    """The agreement that a request carries."""
    return Agreement.from_json(text_of(letters))


def each_reply(replies: Any) -> list[Any]:
    """Every site's reply by itself, in order."""
    return [split_batch(batch, place) for _, batch in replies for place in range(batch_size(batch))]
