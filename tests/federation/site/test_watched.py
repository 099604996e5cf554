"""Every way from a handler to rows goes past the guard: a new one that does not turns these tests red."""

import ast
import inspect
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import make_shards

import fedns
from fedns.core.clients import Clients
from fedns.core.shards import Shards
from fedns.federation.site.answering import Answering
from fedns.federation.site.guard import Guard, Question
from fedns.federation.site.permissions import Permissions, Refusal
from fedns.models.problem import Problem
from fedns.numerics.backend import Backend, LocalSteps
from fedns.numerics.rng import stream_keys
from fedns.sketches import Gaussian

ROOT = Path(fedns.__file__).parent
SHARDS = make_shards(rows=120, columns=4, sizes=(120,))
W, KEYS = np.zeros(4), stream_keys(0, "a test", 1, [0])

# How each method of a problem that is given rows is called; one that is new has to be added, and to be seen below.
PASSES = {
    "losses_along": lambda p: p.losses_along(W, W, np.zeros(2), SHARDS),
    "value": lambda p: p.value(W, SHARDS),
    "gradient": lambda p: p.gradient(W, SHARDS),
    "value_and_gradient": lambda p: p.value_and_gradient(W, SHARDS),
    "gradient_and_hessian": lambda p: p.gradient_and_hessian(W, SHARDS),
    "hessian_times": lambda p: p.hessian_times(W, np.ones((1, 1, 4)), SHARDS),
    "gradient_and_sketch": lambda p: p.gradient_and_sketch(W, SHARDS, Gaussian(8).plan(SHARDS.sizes), KEYS),
    "local_steps": lambda p: p.local_steps(W, SHARDS, LocalSteps(np.array([1]), 60, 0.1, np.zeros(4)), KEYS),
    "coded_blocks": lambda p: list(p.coded_blocks(W, SHARDS)),
    "row_scores": lambda p: list(p.row_scores(W, SHARDS)),
    "evaluate": lambda p: p.evaluate(W, SHARDS),
    "hessian": lambda p: p.hessian(W, SHARDS),
}
READ_NO_ROWS = {
    "root_sizes": "their number",
    "wide": "their number",
    "linearised": "a map, whose rows are passed over later",
}
# What a pass over rows is made of; a handler that called one of these by itself would go past the guard.
OF_A_BACKEND = {
    "derivatives", "losses_along", "gradient", "value_and_gradient", "value_gradient_and_curvatures", "curvatures_along",
    "gradient_and_hessian", "hessian_times", "gradient_and_sketch", "sketched_rows", "local_steps",
}  # fmt: skip
ROWS = {
    "rows", "targets", "sample_weights", "targets_in_bytes", "small_targets", "mean_squares", "blocks", "narrowed", "packed",
    "extract", "pooled", "tables", "dense",
}  # fmt: skip
NO_ROWS = {  # how many, whose, what they are called; the same object over fewer clients
    "starts", "stops", "names", "columns", "num_clients", "num_columns", "sizes", "num_samples", "total_weights", "segments",
    "kept", "select", "from_arrays", "example",
}  # fmt: skip


def watched(folder, **limits):
    answering = Answering(Guard(Permissions(**limits), folder, SHARDS), Question(bytes(16), 1, []))
    return answering, answering.watch(Problem())


def test_every_method_of_a_problem_that_is_given_rows_is_listed():
    given = {name for name, method in inspect.getmembers(Problem, inspect.isfunction)
             if "shards" in inspect.signature(method).parameters and not name.startswith("_")}  # fmt: skip
    assert given == set(PASSES) | set(READ_NO_ROWS)


@pytest.mark.parametrize("name", PASSES)
def test_the_guard_sees_the_pass(name, tmp_path):
    """It counts it, looks at the point, and refuses one at which a few rows decide before anything is computed."""
    answering, problem = watched(tmp_path)
    PASSES[name](problem)
    assert answering.passes >= 1
    with pytest.raises(Refusal, match="R6"):
        PASSES[name](watched(tmp_path, passes=0)[1])
    with pytest.raises(Refusal, match="R4"):
        PASSES[name](watched(tmp_path, smallest_effective_rows=121.0)[1])


def test_rows_that_are_read_without_a_pass_are_counted(tmp_path):
    answering, problem = watched(tmp_path, passes=1)
    problem.before_rows_are_read()
    assert answering.passes == 1
    with pytest.raises(Refusal, match=r"^R6: the answer takes more than 1 passes or 60 seconds$"):
        problem.before_rows_are_read()


def test_every_pass_of_a_backend_is_listed():
    assert {name for name in vars(Backend) if not name.startswith("_")} == OF_A_BACKEND


def test_every_attribute_of_shards_is_listed():
    public = {name for name in dir(Shards) if not name.startswith("_")} | {one.name for one in fields(Shards)}
    assert public == (ROWS | NO_ROWS) - {"tables", "dense"}
    assert {one.name for one in fields(Clients)} == {"shards", "ids", "seed", "round", "memory"}


def functions_of(tree):
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def names_called(node):
    called = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return {one.id if isinstance(one, ast.Name) else one.attr for one in called if isinstance(one, ast.Name | ast.Attribute)}


def handlers_with_what_they_call():
    """Of every handler in the package: the file, its name, and the functions of the file that it comes to."""
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "@on_client(" in text:
            functions = functions_of(ast.parse(text))
            for name, node in functions.items():
                if any("on_client" in ast.unparse(mark) for mark in node.decorator_list):
                    reached, left = {name}, {name}
                    while left:
                        left = {
                            found for one in left for found in names_called(functions[one]) if found in functions
                        } - reached
                        reached |= left
                    yield path.relative_to(ROOT).as_posix(), name, [functions[one] for one in reached]


def attributes(nodes):
    """Those that are read of anything but a block of `coded_blocks`, a pass that is seen; and of no message."""
    found = (one for node in nodes for one in ast.walk(node) if isinstance(one, ast.Attribute))
    return {
        one.attr for one in found if not (isinstance(one.value, ast.Name) and one.value.id in ("block", "request", "told"))
    }


def test_a_handler_reads_rows_by_passes_or_says_that_it_reads_them():
    silent, seen = [], 0
    for file, name, nodes in handlers_with_what_they_call():
        seen += 1
        used = attributes(nodes)
        if used & {"passes", "backend"}:
            silent.append(f"{file}: {name} passes over rows by itself: call a method of the problem")
        if used & ROWS and "before_rows_are_read" not in {called for node in nodes for called in names_called(node)}:
            silent.append(
                f"{file}: {name} reads {', '.join(sorted(used & ROWS))}: call problem.before_rows_are_read() first"
            )
    assert silent == []
    assert seen > 40
