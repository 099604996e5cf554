"""What left a site, in plain words, for whoever has to sign it: made from what every message declares about itself."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

from fedns.core.clients import Handler, messages_of
from fedns.core.cohort import register
from fedns.core.files import write_whole
from fedns.core.messages import Discloses, Message
from fedns.core.messages.ledger import LedgerEntry
from fedns.core.numbers import bytes_text
from fedns.methods import METHODS
from fedns.methods.searches import ArmijoSearch, LocalSearch, search_handlers
from fedns.models.evaluation import evaluate_locally
from fedns.reports.page import html_table, page, section
from fedns.runs.results import Results
from fedns.studies.handshake.handshake import HANDLERS
from fedns.studies.questions import asked_of_any
from fedns.studies.site_lines import WHAT_LEFT_FILE, SiteLines

RESULTS = "page of what left"
_MOST_PAGES = 100  # a page for each site, unless there are more


class Words(NamedTuple):
    """What a field is, and what somebody who has it knows."""

    noun: str
    what: str
    learned: str


WORDS: Mapping[Discloses, Words] = {
    Discloses.NOTHING: Words("numbers", "settings, or what the coordinator sent itself", "nothing about the rows"),
    Discloses.SCHEMA: Words(
        "characters",
        "which columns and levels there are, and of which kind",
        "what the table looks like from outside; levels that few rows have are not named",
    ),
    Discloses.COUNT: Words(
        "counts", "numbers of rows, or their weights", "how many rows there are, and how many of some kind"
    ),
    Discloses.LOSS: Words(
        "averages", "over all rows, how badly the model predicts them", "how well the model fits here on the whole"
    ),
    Discloses.MOMENTS: Words(
        "averages",
        "over all rows, of a column, of its square or of the outcome",
        "what a usual row looks like, and how much rows differ; no single row",
    ),
    Discloses.HISTOGRAM: Words(
        "numbers",
        "for each group of rows with neighbouring predictions or residuals: where it ends, how many rows it has, or the sum "
        "of their outcomes, predictions or residuals",
        "how predictions and outcomes are spread here; no group is smaller than the owner permits, and two such tables that "
        "differ in a few rows do not both leave",
    ),
    Discloses.GRADIENT: Words(
        "sums",
        "for each column, the residuals weighted by that column",
        "in which direction the model is off here on the whole; with as few rows as columns it would tell who is in the "
        "data, and a site refuses then",
    ),
    Discloses.DIRECTION: Words(
        "numbers",
        "a model, or a step towards one, that the site found from all its rows",
        "what the rows on the whole say about the coefficients",
    ),
    Discloses.STEP: Words("numbers", "the length of a step", "how far the model may move; next to nothing about rows"),
    Discloses.SKETCH: Words(
        "numbers",
        "random mixtures of all rows; the random numbers stay here unless the owner says otherwise",
        "how columns go together, roughly; rows cannot be taken out of the mixtures without the random numbers",
    ),
    Discloses.HESSIAN: Words(
        "sums",
        "for each pair of columns, their product weighted by the model",
        "how columns go together here; with as few rows as columns it would be the rows, and a site refuses then",
    ),
    Discloses.SCORES: Words(
        "sums",
        "for each pair of columns, their product weighted by the squared residual",
        "how much the model is off along pairs of columns; with few rows a site refuses, as above",
    ),
    Discloses.HAZARD: Words(
        "numbers",
        "how fast events come here, at times that the study names",
        "about how many events there were between two of those times, never fewer than the owner permits",
    ),
    Discloses.ROWS: Words("numbers", "rows of the table, scaled at most", "those rows"),
}
# Lines of a site's ledger that carry no message of a method.
_OTHERS = {
    "Refusal": (
        "a sentence that says why a request was refused, with no value of the data",
        "which rule of the owner's held",
    ),
    "Repetition": ("an answer that had left before, once more", "nothing new"),
}
_NO_ROW = "The table itself: no row, no name and no value of a single row has left."
_STAYED = (
    "Every column that the study does not name.",
    "The smallest and the largest value of every column, and every level that few rows have.",
)


def stayed(lines: Sequence[LedgerEntry]) -> tuple[str, ...]:
    """What has not left, in sentences."""
    replies = [known_replies()[kind] for kind in {line.kind for line in lines} if kind in known_replies()]
    rows_left = any(spec.discloses is Discloses.ROWS for reply in replies for spec in reply.specs().values())
    return _STAYED if rows_left else (_NO_ROW, *_STAYED)


@cache
def known_replies() -> dict[str, type[Message]]:
    """Every message that a site can be asked for, by its kind."""
    found: dict[str, type[Message]] = {}
    for handler in all_handlers():
        reply = messages_of(handler)[1]
        found[reply.kind] = reply
    return found


def all_handlers() -> list[Handler]:
    """Everything that a run or a study may ask a site for, with the package's own methods and those of others."""
    handlers: list[Handler] = [register, evaluate_locally, *HANDLERS, *asked_of_any()]
    handlers += [*search_handlers(ArmijoSearch()), *search_handlers(LocalSearch())]
    for method in METHODS.values():
        handlers += method().handlers()
    return handlers


@dataclass(frozen=True)
class SentKind:
    """All messages of one kind that left a site."""

    kind: str
    sentence: str  # what the message is
    fields: tuple[tuple[str, str], ...]  # what it holds, and what can be learned from that
    times: int
    bytes: int


def sent_kinds(lines: Sequence[LedgerEntry]) -> list[SentKind]:
    """What left, by kind of message, in the order of the first of each."""
    kinds: dict[str, list[LedgerEntry]] = {}
    for line in lines:
        kinds.setdefault(line.kind, []).append(line)
    return [_sent_kind(kind, same) for kind, same in kinds.items()]


def _sent_kind(kind: str, lines: Sequence[LedgerEntry]) -> SentKind:
    times, size = len(lines), sum(line.bytes for line in lines)
    reply = known_replies().get(kind)
    if reply is None:
        what, learned = _OTHERS.get(kind, ("a message of a method that is not installed here", "what its maker says"))
        return SentKind(kind, what, ((what, learned),), times, size)
    sentence = (
        inspect.cleandoc(reply.__doc__ or "")
        .split("\n\n")[0]
        .replace("A client's", "This site's")
        .replace("a client", "this site")
    )
    fields = []
    for name, spec in reply.specs().items():
        assert spec.discloses is not None  # no handler can be declared otherwise
        noun, what, learned = WORDS[spec.discloses]
        if spec.discloses is Discloses.SCHEMA and spec.kind != "uint8":  # texts travel as bytes; this one is a count
            noun = "numbers"
        counts = sorted({math.prod(line.shapes.get(name, ())) for line in lines})
        number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        fields.append((f"{number} {noun[:-1] if counts == [1] else noun}: {what} ({name})", learned))
    return SentKind(kind, sentence, tuple(fields), times, size)


def site_page(site: str, lines: Sequence[LedgerEntry], about: str) -> str:
    """The page of one site."""
    total = bytes_text(sum(line.bytes for line in lines))
    parts = [
        f"<h1>What left {escape(site)}</h1>",
        f'<p class="lead">{escape(about)}. {len(lines)} messages, {total} in all. Nothing else was sent.</p>',
    ]
    for sent in sent_kinds(lines):
        times = "once" if sent.times == 1 else f"{sent.times} times"
        rows = [[what, learned] for what, learned in sent.fields]
        table = html_table(["what left", "what can be learned from it"], rows, text_columns={0, 1})
        parts.append(
            section(sent.kind, f"<p>{escape(sent.sentence)} Sent {times}, {bytes_text(sent.bytes)} in all.</p>{table}")
        )
    parts.append(section("What stayed", "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in stayed(lines)) + "</ul>"))
    return page(f"What left {site}", "\n".join(parts))


def what_left_text(site: str, lines: Sequence[LedgerEntry]) -> str:
    """The same for a console."""
    found = [f"what left {site}: {len(lines)} messages, {bytes_text(sum(line.bytes for line in lines))}"]
    for sent in sent_kinds(lines):
        found.append(f"  {sent.kind}, {sent.times} times, {bytes_text(sent.bytes)}: {sent.sentence}")
        for what, learned in sent.fields:
            found += [f"    {what}", f"      can be learned: {learned}"]
    return "\n".join([*found, "  stayed:", *(f"    {text}" for text in stayed(lines))])


def write_what_left(found: SiteLines, folder: Path, about: str, results: Results | None = None) -> Path:
    """A page for each site, and one that leads to them. results: what they are a part of; by themselves unless given."""
    pages = {site: f"what-left/{_file_name(site, place)}.html" for place, site in enumerate(found.sites)}
    (results or Results(folder, RESULTS)).claim([WHAT_LEFT_FILE, *(pages.values() if len(pages) <= _MOST_PAGES else ())])
    if len(pages) <= _MOST_PAGES:
        for site, name in pages.items():
            write_whole(folder / name, site_page(site, found.sites[site], about), durable=False)
    links = [
        f'<li><a href="{escape(pages[site])}">{escape(site)}</a>: {len(lines)} messages, '
        f"{bytes_text(sum(line.bytes for line in lines))}</li>"
        for site, lines in found.sites.items()
    ]
    everything = [line for lines in found.sites.values() for line in lines]
    rows = [[sent.kind, sent.sentence, str(sent.times), bytes_text(sent.bytes)] for sent in sent_kinds(everything)]
    body = [
        "<h1>What left the sites</h1>",
        f'<p class="lead">{escape(about)}.</p>',
        section("Site by site", f"<ul>{''.join(links)}</ul>") if len(pages) <= _MOST_PAGES else "",
        section("All sites together", html_table(["message", "what it is", "times", "bytes"], rows, text_columns={0, 1})),
    ]
    path = folder / WHAT_LEFT_FILE
    write_whole(path, page("What left the sites", "\n".join(body)), durable=False)
    return path


def _file_name(site: str, place: int) -> str:
    """A name that every file system takes, and that no other site has."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", site).strip("-")[:60]
    return plain if plain == site else f"{plain or 'site'}-{place + 1}"
