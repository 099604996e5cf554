"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

DASH = "-"


def bytes_text(count: float) -> str:
    """Bytes with three digits and a decimal unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def seconds_text(seconds: float) -> str:
    return f"{seconds:.3g}" if seconds < 100 else f"{seconds:.0f}"


def rounds_text(rounds: float) -> str:
    return f"{rounds:.1f}".removesuffix(".0")


def gap_text(gap: float | None) -> str:
    return DASH if gap is None else f"{gap:.1e}"


def one_parameter_a_line(method: str) -> str:
    """A long text with one parameter to a line."""
    return method if len(method) < 24 else method.replace(":", ":\n ", 1).replace(";", "\n ")


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return ["| " + " | ".join(row) + " |" for row in [headings, ["---"] * len(headings), *rows]]
