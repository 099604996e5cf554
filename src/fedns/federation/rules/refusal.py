"""What a rule is made of: limits, each with its reason, and a refusal, which never has a value of the data."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from fedns.core.errors import MessageError


class Refusal(MessageError):
    """A rule of the owner's that a request breaks; `detail` is for the site's own log alone."""

    def __init__(self, rule: str, sentence: str, detail: str = "") -> None:
        super().__init__(f"{rule}: {sentence}")
        self.rule, self.detail = rule, detail


def small_group(detail: str) -> Refusal:
    """The refusal wherever a group of rows is too small: which rule it was would tell of the group, and is for the log."""
    return Refusal(
        "R2", "a group of its rows is too small for sums over it, by outcome, level or study; its log has which", detail
    )


def limit(default: Any, reason: str) -> Any:
    return field(default=default, metadata={"reason": reason})
