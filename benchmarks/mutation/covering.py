"""A plugin of pytest: which test runs which lines of the files under test, and for how long."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter  # by its name: tests set clocks of their own
from typing import Any

import pytest
from benchmarks.mutation.tracing import CHILDREN, FILES, watch

MAP = "MUTATION_MAP"  # environment: where the map goes
_ROOT = Path.cwd()
_lines: dict[str, set[tuple[str, int]]] = defaultdict(set)  # by test; what a module's fixtures run, by module
_current: set[tuple[str, int]] = set()
_seconds: dict[str, float] = defaultdict(float)
_passed: dict[str, bool] = {}


def pytest_sessionstart() -> None:
    watch(Path(os.environ[FILES]).read_text(encoding="utf-8").splitlines(), lambda file, line: _current.add((file, line)))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    yield from _into(item.nodeid.split("::")[0], item)  # a fixture of the module serves its other tests, too


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    yield from _into(item.nodeid, item)


def _into(place: str, item: pytest.Item) -> Iterator[None]:
    global _current
    _current, start = _lines[place], perf_counter()
    yield
    _seconds[item.nodeid] += perf_counter() - start
    _current = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        _passed[report.nodeid] = report.passed


def pytest_sessionfinish() -> None:
    children = Path(os.environ[CHILDREN])
    for entry in children.read_text(encoding="utf-8").splitlines() if children.exists() else ():
        test, file, line = entry.split("\t")
        nodeid, _, phase = test.rpartition(" ")
        _lines[nodeid.split("::")[0] if phase == "(setup)" else nodeid].add((file, int(line)))
    found: dict[str, Any] = {
        test: {"seconds": round(_seconds[test], 3), "passed": passed, "lines": _by_file(_lines[test])}
        for test, passed in _passed.items()
    }
    modules = {place: _by_file(lines) for place, lines in _lines.items() if "::" not in place}
    Path(os.environ[MAP]).write_text(json.dumps({"tests": found, "modules": modules}), encoding="utf-8")


def _by_file(lines: set[tuple[str, int]]) -> dict[str, list[int]]:
    by_file: dict[str, list[int]] = defaultdict(list)
    for file, line in sorted(lines):
        by_file[Path(file).relative_to(_ROOT).as_posix()].append(line)
    return by_file
