"""Formulas: `disease ~ age + C(sex) + chest_pain * ex_angina + bs(chol, df=4) + poly(age, 2) + offset(log(t))`.

They are read here and nowhere evaluated as code: a formula comes to a site from somebody else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from fedns.core.errors import ConfigError, unknown
from fedns.studies.tables.transforms import TRANSFORMS, Itself, Transform

LONGEST = 4000  # characters
MOST_TERMS = 2000
DEEPEST = 20  # parentheses within each other
INTERCEPT = "Intercept"
_OFFSET = "offset"
_TOKEN = re.compile(r"\s*(?:(?P<quoted>`[^`]+`)|(?P<number>\d+\.?\d*)|(?P<name>[^\W\d][\w.]*)|(?P<mark>[~+\-*:(),=\[\]]))")


@dataclass(frozen=True)
class Factor:
    """A column, or what a transform makes of it."""

    column: str
    transform: Transform = field(default_factory=Itself)

    @property
    def text(self) -> str:
        """As in the names of coefficients."""
        return self.transform.text(self.column)

    @property
    def expression(self) -> Factor:
        """The numbers whose mean and deviation sites tell: the column itself where its transform makes several of it."""
        return Factor(self.column) if self.transform.numbered else self


Term = tuple[Factor, ...]


@dataclass(frozen=True)
class Formula:
    """An outcome and the terms that it depends on, main effects before interactions."""

    outcome: str
    terms: tuple[Term, ...]
    intercept: bool = True
    offset: Factor | None = None

    @property
    def factors(self) -> tuple[Factor, ...]:
        """Every factor once, that of the offset last."""
        found = dict.fromkeys(factor for term in self.terms for factor in term)
        return (*found, *([self.offset] if self.offset else []))

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column on the right-hand side once."""
        return tuple(dict.fromkeys(factor.column for factor in self.factors))


def term_text(term: Term) -> str:
    return ":".join(factor.text for factor in term) or INTERCEPT


def parse_formula(text: str) -> Formula:
    """A formula from its text."""
    if len(text) > LONGEST:
        raise ConfigError(f"the formula has {len(text)} characters, at most {LONGEST} are read")
    return _Parser(text).formula()


def quoted(column: str) -> str:
    """A column's name as a formula needs it."""
    return column if re.fullmatch(r"[^\W\d][\w.]*", column) else f"`{column}`"


class _Parser:
    """Recursive descent: sums of products of interactions of factors. () is the intercept."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.depth = 0
        self.offset: Factor | None = None

    def formula(self) -> Formula:
        outcome = self._name("the outcome")
        self._expect("~")
        terms = self._sum([()])
        if self.tokens:
            raise self._error(f"'{self.tokens[0][1]}' was not expected there")
        distinct = list({frozenset(term): term for term in reversed(terms)}.values())[::-1]  # a:b is b:a
        self._bound(2 * len(distinct))
        main_first = sorted((term for term in distinct if term), key=len)
        if not main_first and () not in distinct:
            raise self._error("it has neither a term nor an intercept")
        if any(factor.column == outcome for term in main_first for factor in term):
            raise self._error(f"the outcome '{outcome}' stands on both sides")
        return Formula(outcome, tuple(main_first), () in distinct, self.offset)

    def _sum(self, terms: list[Term]) -> list[Term]:
        sign = "+"
        while True:
            if sign == "+":
                terms = terms + [term for term in self._product(terms) if term not in terms]
            else:
                gone = self._product(terms)
                terms = [term for term in terms if term not in gone]
            self._bound(len(terms))
            if not self._next_is("+", "-"):
                return terms
            sign = self.tokens.pop(0)[1]

    def _product(self, so_far: list[Term]) -> list[Term]:
        if self._next_is("0"):  # no intercept
            self.tokens.pop(0)
            so_far[:] = [term for term in so_far if term]
            return []
        left = self._interaction()
        while self._next_is("*"):
            self.tokens.pop(0)
            right = self._interaction()
            left = left + right + self._crossed(left, right)
        return left

    def _interaction(self) -> list[Term]:
        left = self._atom()
        while self._next_is(":"):
            self.tokens.pop(0)
            left = self._crossed(left, self._atom())
        return left

    def _bound(self, terms: int) -> None:
        """Before they are made, and while a:b and b:a are two: a short text can ask for more than fit into memory."""
        if terms > 2 * MOST_TERMS:
            raise self._error(f"it has more than the {MOST_TERMS} terms that are allowed")

    def _crossed(self, left: list[Term], right: list[Term]) -> list[Term]:
        self._bound(len(left) * len(right))
        return [tuple(dict.fromkeys((*a, *b))) for a in left for b in right]

    def _atom(self) -> list[Term]:
        if self._next_is("("):
            self.tokens.pop(0)
            self.depth += 1
            if self.depth > DEEPEST:
                raise self._error("it has too many parentheses within each other")
            inner = self._sum([])
            self.depth -= 1
            self._expect(")")
            return inner
        if self._next_is("1"):
            self.tokens.pop(0)
            return [()]
        if self._next_is(_OFFSET, before="("):
            self._read_offset()
            return []
        return [(self._factor(),)]

    def _factor(self) -> Factor:
        is_quoted = bool(self.tokens) and self.tokens[0][0] == "quoted"
        name = self._name("a column or a function")
        if is_quoted or not self._next_is("("):
            return Factor(name)
        if name not in TRANSFORMS:
            raise self._error(unknown("function", name, (*TRANSFORMS, _OFFSET)))
        self._expect("(")
        column = self._name(f"the column of {name}(...)")
        kind = TRANSFORMS[name]
        options = self._options(kind)
        self._expect(")")
        try:
            return Factor(column, kind.read(column, options))
        except ConfigError as error:
            raise self._error(str(error)) from None

    def _read_offset(self) -> None:
        if self.offset is not None:
            raise self._error("it has two offsets: add them up in one column")
        self.tokens.pop(0)
        self._expect("(")
        self.offset = self._factor()
        if self.offset.transform.numbered or self.offset.transform.makes_levels:
            raise self._error(f"an offset is a column or a function of one, not {self.offset.text}")
        self._expect(")")

    def _options(self, kind: type[Transform]) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        while self._next_is(","):
            self.tokens.pop(0)
            if not kind.options:
                raise self._error(f"{kind.name}(...) has no options")
            key = kind.options[0]
            if self.tokens and self.tokens[0][0] == "name":
                key = self._name("an option")
                self._expect("=")
            if key not in kind.options:
                raise self._error(f"{kind.name}(...) has no option '{key}': it has {', '.join(kind.options)}")
            found[key] = self._numbers()
        return found

    def _numbers(self) -> list[float]:
        if not self._next_is("["):
            return [self._number()]
        self._expect("[")
        values = [self._number()]
        while self._next_is(","):
            self.tokens.pop(0)
            values.append(self._number())
        self._expect("]")
        return values

    def _number(self) -> float:
        sign = 1.0
        if self._next_is("-"):
            self.tokens.pop(0)
            sign = -1.0
        if not self.tokens or self.tokens[0][0] != "number":
            raise self._error("a number was expected")
        return sign * float(self.tokens.pop(0)[1])

    def _name(self, what: str) -> str:
        if not self.tokens or self.tokens[0][0] not in ("name", "quoted"):
            found = f"'{self.tokens[0][1]}' stands there" if self.tokens else "it ends there"
            raise self._error(f"{what} was expected, {found}")
        return self.tokens.pop(0)[1].strip("`")

    def _next_is(self, *marks: str, before: str = "") -> bool:
        """Whether the next sign or word is one of these, and what follows it is `before`."""
        found = bool(self.tokens) and self.tokens[0][1] in marks and self.tokens[0][0] != "quoted"
        return found and (not before or [token[1] for token in self.tokens[1:2]] == [before])

    def _expect(self, mark: str) -> None:
        if not self._next_is(mark):
            found = f"'{self.tokens[0][1]}' stands there" if self.tokens else "it ends there"
            raise self._error(f"'{mark}' was expected, {found}")
        self.tokens.pop(0)

    def _error(self, what: str) -> ConfigError:
        return ConfigError(f"the formula '{self.text}' cannot be read: {what}")


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConfigError(f"the formula '{text}' cannot be read: '{text[at:].strip()[0]}' has no meaning in it")
        kind = match.lastgroup or ""
        found.append((kind, match[kind]))
        at = match.end()
    return found
