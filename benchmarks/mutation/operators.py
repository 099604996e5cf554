"""Small defects that a test should notice: what each would put in place of which part of a source file."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

_SIDES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LEAVES = (ast.Raise, ast.Return, ast.Continue, ast.Break)
_SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)


@dataclass(frozen=True)
class Mutant:
    """One defect: the text between two places of a file, and what stands there instead."""

    file: str
    line: int
    last_line: int  # of the statement, or of its head: tests that run any of these lines may notice it
    operator: str
    start: int
    stop: int
    before: str
    after: str
    on_import: bool  # the line runs when the module is imported, so that every test may notice it

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.stop :]


def mutants(file: str, source: str) -> list[Mutant]:
    """Every defect that these operators know for a file; none that leaves the program as it is."""
    return list(dict.fromkeys(_File(file, source).found()))


class _File:
    def __init__(self, file: str, source: str) -> None:
        self.file, self.text = file, source.encode()
        self.tree = ast.parse(source)
        lines = self.text.splitlines(keepends=True)
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line))

    def found(self) -> Iterator[Mutant]:
        yield from self._block(self.tree.body, inside=False, valued=True)

    def _block(self, body: list[ast.stmt], *, inside: bool, valued: bool) -> Iterator[Mutant]:
        body = [statement for statement in body if not _is_text(statement)]
        for one, other in pairwise(body):
            if inside and _has_order(one, other):
                yield self._put(one, self._swapped(one, other), "order of statements", inside, until=other)
        for position, statement in enumerate(body):
            if inside and not valued and position and not isinstance(statement, ast.Return | ast.Pass):
                yield self._put(statement, "return", "returned early", inside)
            yield from self._statement(statement, inside)

    def _statement(self, statement: ast.stmt, inside: bool) -> Iterator[Mutant]:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            for default in [*statement.args.defaults, *statement.args.kw_defaults]:
                yield from self._expressions(default, statement, inside)
            valued = any(isinstance(node, ast.Return) and node.value is not None for node in _own(statement)) or any(
                isinstance(node, ast.Yield | ast.YieldFrom) for node in _own(statement)
            )
            yield from self._block(statement.body, inside=True, valued=valued)
            return
        if isinstance(statement, ast.ClassDef):
            yield from self._block(statement.body, inside=False, valued=True)
            return
        if isinstance(statement, ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal | ast.Assert):
            return
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            return
        if inside and _may_go(statement):
            yield self._put(statement, "pass", "removed " + type(statement).__name__.lower(), inside)
        if isinstance(statement, ast.If) and isinstance(statement.body[-1], _LEAVES) and not statement.orelse:
            yield self._put(statement.test, "False", "dropped check", inside, head=statement)
        if isinstance(statement, ast.Return) and statement.value is not None and not _is_none(statement.value):
            yield self._put(statement.value, "None", "nothing returned", inside, head=statement)
        for name, child in ast.iter_fields(statement):
            if name in ("body", "orelse", "finalbody"):
                yield from self._block(child, inside=inside, valued=True)
            elif name in ("handlers", "cases"):
                for part in child:
                    yield from self._block(part.body, inside=inside, valued=True)
            elif name not in ("annotation", "target", "targets"):
                for expression in child if isinstance(child, list) else [child]:
                    yield from self._expressions(expression, statement, inside)

    def _expressions(self, root: ast.AST | None, head: ast.stmt, inside: bool) -> Iterator[Mutant]:
        if not isinstance(root, ast.expr | ast.withitem | ast.keyword | ast.comprehension):
            return
        tests = [head.test] if isinstance(head, ast.If | ast.While) and root is head.test else []
        for node in _walk(root):
            if isinstance(node, ast.IfExp):
                tests.append(node.test)
            if isinstance(node, ast.comprehension):
                tests += node.ifs
            if isinstance(node, ast.expr):
                for operator, other in _variants(node):
                    yield self._put(node, f"({ast.unparse(other)})", operator, inside, head=head)
        for test in tests:
            yield self._put(test, f"(not ({ast.unparse(test)}))", "negated condition", inside, head=head)

    def _put(
        self,
        node: ast.AST,
        after: str,
        operator: str,
        inside: bool,
        *,
        until: ast.AST | None = None,
        head: ast.AST | None = None,
    ) -> Mutant:
        start, stop = self._place(node)[0], self._place(until or node)[1]
        first = getattr(head or node, "lineno", 0)
        last = getattr(until or head or node, "end_lineno", first)
        if isinstance(head, ast.If | ast.While | ast.For | ast.With | ast.Try | ast.FunctionDef | ast.ClassDef):
            last = max(first, head.body[0].lineno - 1) if isinstance(head.body[0], ast.stmt) else first
        before = self.text[start:stop].decode()
        return Mutant(self.file, node.lineno, last, operator, start, stop, before, after, not inside)  # type: ignore[attr-defined]

    def _place(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.starts[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
            self.starts[node.end_lineno - 1] + node.end_col_offset,  # type: ignore[attr-defined]
        )

    def _swapped(self, one: ast.stmt, other: ast.stmt) -> str:
        texts = [self.text[slice(*self._place(node))].decode() for node in (other, one)]
        return ("\n" + " " * one.col_offset).join(texts)


def _variants(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """What else this expression might have been, by mistake."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SIDES:
        yield "other side of a limit", _changed(node, lambda new: new.ops.__setitem__(0, _SIDES[type(node.ops[0])]()))
    elif isinstance(node, ast.Compare):
        for position, operator in enumerate(node.ops):
            other = _SIDES[type(operator)]()
            yield "other side of a limit", _changed(node, lambda new, at=position, to=other: new.ops.__setitem__(at, to))
    if isinstance(node, ast.BoolOp):
        yield "and or", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        for position in range(len(node.values)):
            rest = node.values[:position] + node.values[position + 1 :]
            yield "condition left out", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield "sign or not left out", node.operand
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_path(node):
        yield "arithmetic", ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "constant", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        for value in (node.value + 1, node.value - 1) if isinstance(node.value, int) else (node.value * 10, node.value / 2):
            yield "constant", ast.Constant(value)
    if isinstance(node, ast.Call):
        yield from _calls(node)
    if isinstance(node, ast.JoinedStr):
        yield from _sentences(node)


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        yield "other function", _changed(node, lambda new: setattr(new, "func", ast.Name(_FUNCTIONS[node.func.id])))  # type: ignore[attr-defined]
    plain = not any(isinstance(argument, ast.Starred) for argument in node.args)
    if plain and len(node.args) > 1 and ast.unparse(node.args[0]) != ast.unparse(node.args[1]):
        yield "swapped arguments", ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)
    for position, keyword in enumerate(node.keywords):
        if keyword.arg:
            rest = node.keywords[:position] + node.keywords[position + 1 :]
            yield "argument left out", ast.Call(node.func, node.args, rest)


def _sentences(node: ast.JoinedStr) -> Iterator[tuple[str, ast.expr]]:
    """The same sentence with two of its values exchanged, or with one that was computed otherwise."""
    values = [position for position, part in enumerate(node.values) if isinstance(part, ast.FormattedValue)]
    for one, other in pairwise(values):
        new = copy.deepcopy(node)
        first, second = new.values[one], new.values[other]
        assert isinstance(first, ast.FormattedValue) and isinstance(second, ast.FormattedValue)
        first.value, second.value = second.value, first.value
        if ast.unparse(first.value) != ast.unparse(second.value):
            yield "value of a sentence", new
    for position in values:
        part = node.values[position]
        assert isinstance(part, ast.FormattedValue)
        for inner in _walk(part.value):
            if not isinstance(inner, ast.expr) or isinstance(inner, ast.JoinedStr):
                continue
            for _, variant in _variants(inner):
                new = copy.deepcopy(node)
                changed = new.values[position]
                assert isinstance(changed, ast.FormattedValue)
                changed.value = _Replaced(ast.dump(inner), variant).visit(changed.value)
                yield "value of a sentence", new


class _Replaced(ast.NodeTransformer):
    def __init__(self, old: str, new: ast.expr) -> None:
        self.old, self.new = old, new

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return self.new if ast.dump(node) == self.old else super().generic_visit(node)


def _changed(node: ast.expr, change: Callable[[ast.expr], None]) -> ast.expr:
    new = copy.deepcopy(node)
    change(new)
    return new


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """This node and what is in it, but nothing inside a sentence, which is changed as a whole."""
    yield node
    if not isinstance(node, ast.JoinedStr):
        for child in ast.iter_child_nodes(node):
            yield from _walk(child)


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, without functions that are in it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield from _own(child)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_path(node: ast.BinOp) -> bool:
    """Whether it joins texts or the parts of a path: with another operator it is no program, and any test would notice."""
    constant = isinstance(node.op, ast.Div) and isinstance(node.right, ast.Name) and node.right.id.isupper()
    return constant or any(
        isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, str)) for n in ast.walk(node)
    )


def _may_go(statement: ast.stmt) -> bool:
    """Whether a program without this statement still runs: it binds no name that others need."""
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets)
    if isinstance(statement, ast.Delete):  # of a name it gives memory back, and nothing else
        return not all(isinstance(target, ast.Name) for target in statement.targets)
    return isinstance(statement, ast.Raise | ast.AugAssign | ast.Continue | ast.Break) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    )


def _has_order(one: ast.stmt, other: ast.stmt) -> bool:
    """Whether two statements can be exchanged, and one of them does more than bind names."""
    acts = any(_may_go(statement) and not isinstance(statement, ast.Assign) for statement in (one, other))
    if not (isinstance(one, _SIMPLE) and isinstance(other, _SIMPLE) and acts):
        return False
    bound = {name.id for name in _names(ast.walk(one), ast.Store)}
    return not bound & {name.id for name in _names(ast.walk(other), ast.Load)}


def _names(nodes: Iterable[ast.AST], context: type[ast.expr_context]) -> Iterator[ast.Name]:
    return (node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, context))
