"""What left each site, message by message: kept by the simulator, read from the ledgers of a federation or of a site."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fedns.core.clients import Handler, Ids
from fedns.core.cohort import Session
from fedns.core.errors import DataError
from fedns.core.messages import Message, split_batch
from fedns.core.messages.encoding import batch_bytes
from fedns.core.messages.ledger import LedgerEntry, shapes_of
from fedns.core.shards import Shards
from fedns.simulation.simulator import SimulatedCohort

WHAT_LEFT_FILE = "what-left.html"  # the page that is made of them, in a folder of results


@dataclass
class SiteLines:
    """All that left, by site, in order."""

    sites: dict[str, list[LedgerEntry]] = field(default_factory=dict)

    def add(self, site: str, line: LedgerEntry) -> None:
        self.sites.setdefault(site, []).append(line)


class RecordedCohort(SimulatedCohort):
    """Simulated sites, each of which has a ledger."""

    def __init__(self, shards: Shards, session: Session, lines: SiteLines) -> None:
        self._lines = lines
        super().__init__(shards, session)

    def _deliver(self, handler: Handler, frame: bytes, ids: Ids) -> Iterator[tuple[Ids, Message]]:
        names = self.shards.names or ()
        for chunk, batch in super()._deliver(handler, frame, ids):
            for place, (client, length) in enumerate(
                zip(chunk.tolist(), batch_bytes(batch, self.session.precision).tolist(), strict=True)
            ):
                reply = split_batch(batch, place)
                at = self.session.round, self.session.meter.exchanges
                entry = LedgerEntry(*at, "uplink", reply.kind, shapes_of(reply), 1, length, handler.__name__)
                self._lines.add(names[client], entry)
            yield chunk, batch


def read_lines(path: Path, site: str = "") -> SiteLines:
    """From a ledger: a coordinator's names the site of every line; in a site's own all lines are of this one."""
    found = SiteLines()
    if not path.is_file():
        raise DataError(f"{path} does not exist: nothing has left yet, or the path is wrong")
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            line = json.loads(text)
            if line["direction"] == "uplink":
                found.add(site or str(line["site"]), LedgerEntry.of_line(line))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise DataError(f"{path}: line {number} is no line of a ledger") from None
    return found
