"""Formulas: `disease ~ age + C(sex) + chest_pain * ex_angina + bs(chol, df=4) + poly(age, 2) + offset(log(t))`.

They are read here and nowhere evaluated as code: a formula comes to a site from somebody else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import ConfigError, unknown

FloatArray = NDArray[np.float64]
LONGEST = 4000  # characters
MOST_TERMS = 2000
DEEPEST = 20  # parentheses within each other
# Functions of one column, and where they are defined.
FUNCTIONS: dict[str, tuple[Callable[[FloatArray], FloatArray], str]] = {
    "log": (np.log, "above 0"),
    "log2": (np.log2, "above 0"),
    "log10": (np.log10, "above 0"),
    "log1p": (np.log1p, "above -1"),
    "sqrt": (np.sqrt, "at least 0"),
    "square": (np.square, ""),
}
_KNOWN = ("C", "bs", "poly", "offset", *FUNCTIONS)
_TOKEN = re.compile(r"\s*(?:(?P<quoted>`[^`]+`)|(?P<number>\d+\.?\d*)|(?P<name>[^\W\d][\w.]*)|(?P<mark>[~+\-*:(),=\[\]]))")


@dataclass(frozen=True)
class Factor:
    """A column, or something made of it."""

    column: str
    function: str = ""  # "" for the column as it is
    size: int = 0  # columns of a spline, degree of a polynomial
    degree: int = 3  # of a spline
    knots: tuple[float, ...] = ()  # of a spline, where they are given

    @property
    def text(self) -> str:
        """As in the names of coefficients."""
        if not self.function:
            return self.column
        if self.function == "poly":
            return f"poly({self.column}, {self.size})"
        if self.function == "bs":
            given = f"knots=[{', '.join(f'{knot:g}' for knot in self.knots)}]" if self.knots else f"df={self.size}"
            return f"bs({self.column}, {given})" if self.degree == 3 else f"bs({self.column}, {given}, degree={self.degree})"
        return f"{self.function}({self.column})"


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
    return ":".join(factor.text for factor in term) or "Intercept"


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
        factor = self._factor()
        if factor.function == "offset":
            raise self._error("offset(...) needs a column or a function of one")
        return [(factor,)] if factor.column else []

    def _factor(self) -> Factor:
        is_quoted = bool(self.tokens) and self.tokens[0][0] == "quoted"
        name = self._name("a column or a function")
        if is_quoted or not self._next_is("("):
            return Factor(name)
        if name not in _KNOWN:
            raise self._error(unknown("function", name, _KNOWN))
        self._expect("(")
        if name == "offset":
            if self.offset is not None:
                raise self._error("it has two offsets: add them up in one column")
            self.offset = self._factor()
            if self.offset.function and self.offset.function not in FUNCTIONS:
                raise self._error(f"an offset is a column or a function of one, not {self.offset.text}")
            self._expect(")")
            return Factor("")
        column = self._name(f"the column of {name}(...)")
        options = self._options(name)
        self._expect(")")
        return _factor_of(name, column, options, self._error)

    def _options(self, function: str) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        while self._next_is(","):
            self.tokens.pop(0)
            key = "degree" if function == "poly" else "df"
            if self.tokens and self.tokens[0][0] == "name":
                key = self._name("an option")
                self._expect("=")
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

    def _next_is(self, *marks: str) -> bool:
        return bool(self.tokens) and self.tokens[0][1] in marks and self.tokens[0][0] != "quoted"

    def _expect(self, mark: str) -> None:
        if not self._next_is(mark):
            found = f"'{self.tokens[0][1]}' stands there" if self.tokens else "it ends there"
            raise self._error(f"'{mark}' was expected, {found}")
        self.tokens.pop(0)

    def _error(self, what: str) -> ConfigError:
        return ConfigError(f"the formula '{self.text}' cannot be read: {what}")


def _factor_of(name: str, column: str, options: dict[str, list[float]], error: Callable[[str], ConfigError]) -> Factor:
    allowed = {"bs": ("df", "degree", "knots"), "poly": ("degree",)}.get(name, ())
    for key in options:
        if key not in allowed:
            raise error(f"{name}(...) has no option '{key}'" + (f": it has {', '.join(allowed)}" if allowed else ""))
    if name == "poly":
        size = options.get("degree", [2.0])[0]
        if size not in (1, 2, 3, 4, 5):
            raise error(f"the degree of poly({column}, ...) must be 1 to 5")
        return Factor(column, "poly", int(size))
    if name == "bs":
        return _spline(column, options, error)
    return Factor(column, name)


def _spline(column: str, options: dict[str, list[float]], error: Callable[[str], ConfigError]) -> Factor:
    degree, knots = options.get("degree", [3.0])[0], tuple(sorted(options.get("knots", [])))
    if degree not in (1, 2, 3, 4, 5):
        raise error(f"the degree of bs({column}, ...) must be 1 to 5")
    size = options.get("df", [degree + len(knots)])[0]
    if size != int(size) or not degree <= size <= 50:
        raise error(f"df of bs({column}, ...) must be a whole number from {degree:g} to 50")
    if knots and size != degree + len(knots):
        raise error(
            f"bs({column}, ...) has {len(knots)} knots and degree {degree:g}, which makes df={degree + len(knots):g}"
        )
    if len(set(knots)) < len(knots):
        raise error(f"bs({column}, ...) has a knot twice")
    return Factor(column, "bs", int(size), int(degree), knots)


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
