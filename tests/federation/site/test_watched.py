"""Every way from a handler to rows goes past the guard: a new one that does not turns these tests red."""

import ast
import inspect
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import make_shards

import fedns
from fedns.core.clients import Clients
from fedns.core.shards import Shards
from fedns.federation.permissions import Permissions
from fedns.federation.rules.refusal import Refusal
from fedns.federation.site.answering import Answering
from fedns.federation.site.guard import Asked, Guard
from fedns.models.cox import Cox
from fedns.models.losses import Logistic, Squared
from fedns.models.problem import Problem
from fedns.models.softmax import Softmax
from fedns.numerics.backend import Backend, LocalSteps
from fedns.numerics.backends.around import AroundBackend
from fedns.numerics.backends.guarded import GuardedBackend
from fedns.numerics.backends.offset import OffsetBackend
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
    "design_blocks": lambda p: list(p.design_blocks(W, SHARDS)),
    "row_scores": lambda p: list(p.row_scores(W, SHARDS)),
    "evaluate": lambda p: p.evaluate(W, SHARDS),
    "hessian": lambda p: p.hessian(W, SHARDS),
}
READ_NO_ROWS = {
    "root_sizes": "their number",
    "wide": "their number",
    "linearised": "a map, whose rows are passed over later",
}
# How each pass of the contract is asked for; one that is new has to be added, and is watched before it is.
AT = Logistic(), SHARDS, W
OF_A_BACKEND = {
    "losses_along": lambda b: b.losses_along(*AT, W, np.zeros(2)),
    "gradient": lambda b: b.gradient(*AT),
    "value_and_gradient": lambda b: b.value_and_gradient(*AT),
    "value_gradient_and_curvatures": lambda b: b.value_gradient_and_curvatures(*AT, np.ones(120)),
    "curvatures_along": lambda b: b.curvatures_along(*AT, W, np.zeros(1), np.ones(120)),
    "gradient_and_hessian": lambda b: b.gradient_and_hessian(*AT),
    "hessian_times": lambda b: b.hessian_times(*AT, np.ones((1, 1, 4))),
    "gradient_and_sketch": lambda b: b.gradient_and_sketch(*AT, Gaussian(8).plan(SHARDS.sizes), KEYS),
    "local_steps": lambda b: b.local_steps(*AT, LocalSteps(np.array([1]), 60, 0.1, np.zeros(4)), KEYS),
    "blocks": lambda b: list(b.blocks(*AT, 50)),
}
OTHERS_OF_A_BACKEND = {  # of no rows, refused, or said before rows are read otherwise
    "derivatives", "sketched_rows", "before_rows_are_read", "before_counts_leave",
}  # fmt: skip
REACHES_ROWS = {"passes", "backend"}  # of a problem: both are guarded
ROWS = {
    "rows", "targets", "sample_weights", "mean_squares", "blocks", "narrowed", "onehot",
    "extract", "pooled", "tables", "dense",
}  # fmt: skip
NO_ROWS = {  # how many, whose, what they are called; the same object over fewer clients
    "starts", "stops", "names", "columns", "num_clients", "num_columns", "sizes", "num_samples", "total_weights", "segments",
    "cached", "select", "from_arrays", "example",
}  # fmt: skip


def watched(folder, **limits):
    answering = Answering(Guard(Permissions(**limits), folder, SHARDS), Asked(bytes(16), 1, []))
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


@pytest.mark.parametrize("name", OF_A_BACKEND)
def test_a_pass_that_is_asked_of_the_backend_itself_is_seen_too(name, tmp_path):
    for way in REACHES_ROWS:
        with pytest.raises(Refusal, match="R6"):
            OF_A_BACKEND[name](getattr(watched(tmp_path, passes=0)[1], way))
        with pytest.raises(Refusal, match="R4"):
            OF_A_BACKEND[name](getattr(watched(tmp_path, smallest_effective_rows=121.0)[1], way))
    plain, seen = OF_A_BACKEND[name](Problem().passes), OF_A_BACKEND[name](watched(tmp_path)[1].passes)
    for one, other in zip(plain, seen, strict=True):
        np.testing.assert_array_equal(one, other) if isinstance(one, np.ndarray) else None


def test_a_problem_with_another_loss_or_an_offset_is_watched_as_well(tmp_path):
    for loss in (Squared(), Softmax(3), Cox()):
        problem = replace(watched(tmp_path)[1], loss=loss)
        assert isinstance(problem.passes, GuardedBackend)
    _, problem = watched(tmp_path)
    with_offset = replace(problem, offset=True).passes
    assert isinstance(with_offset, GuardedBackend)
    assert isinstance(with_offset.inside, OffsetBackend)


def test_a_sketch_of_the_rows_themselves_is_refused(tmp_path):
    with pytest.raises(Refusal, match=r"^R3: no method needs a sketch of the rows as they are"):
        watched(tmp_path)[1].passes.sketched_rows(SHARDS, Gaussian(8).plan(SHARDS.sizes), KEYS)


def test_rows_that_are_read_without_a_pass_are_counted(tmp_path):
    answering, problem = watched(tmp_path, passes=1)
    problem.before_rows_are_read()
    assert answering.passes == 1
    with pytest.raises(Refusal, match=r"^R6: the answer takes more than 1 passes or 60 seconds$"):
        problem.before_rows_are_read()


def public(what):
    return {name for name in dir(what) if not name.startswith("_")}


def test_every_pass_of_a_backend_is_listed_and_nothing_else_can_be_reached(tmp_path):
    declared = set(OF_A_BACKEND) | OTHERS_OF_A_BACKEND
    assert public(Backend) == declared
    assert public(watched(tmp_path)[1].backend) == declared | {"around", "inside", "answering"}
    assert declared <= set(vars(AroundBackend))  # none is what `Backend` makes of others


def test_every_attribute_of_a_problem_is_listed():
    """What is no pass over rows gives a number, a setting, or what is computed of numbers that the caller has."""
    of_no_rows = {
        "loss", "penalty", "intercept", "feature_map", "offset", "num_features", "penalty_value", "penalty_along",
        "penalty_gradient", "penalty_curvature",
        "newton_step", "combine", "example", "is_settings", "before_rows_are_read", "before_counts_leave",
    }  # fmt: skip
    listed = of_no_rows | set(PASSES) | set(READ_NO_ROWS) | REACHES_ROWS
    assert public(Problem) | {one.name for one in fields(Problem)} == listed


def test_every_attribute_of_shards_is_listed():
    assert public(Shards) | {one.name for one in fields(Shards)} == (ROWS | NO_ROWS) - {"tables", "dense"}
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
    """Those that are read of anything but a block of `design_blocks`, a pass that is seen; and of no message."""
    found = (one for node in nodes for one in ast.walk(node) if isinstance(one, ast.Attribute))
    return {
        one.attr for one in found if not (isinstance(one.value, ast.Name) and one.value.id in ("block", "request", "told"))
    }


def test_a_handler_reads_rows_by_passes_or_says_that_it_reads_them():
    silent, seen = [], 0
    for file, name, nodes in handlers_with_what_they_call():
        seen += 1
        used = attributes(nodes)
        if used & {*REACHES_ROWS, "inside"}:
            silent.append(f"{file}: {name} passes over rows by itself: call a method of the problem")
        if used & ROWS and "before_rows_are_read" not in {called for node in nodes for called in names_called(node)}:
            silent.append(
                f"{file}: {name} reads {', '.join(sorted(used & ROWS))}: call problem.before_rows_are_read() first"
            )
    assert silent == []
    assert seen > 40
