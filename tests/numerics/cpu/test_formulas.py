"""Formulas as kernels get them."""

import importlib
import os
import subprocess
import sys

import numpy as np
import pytest
from numba import types

from fedns.numerics.cpu import formulas
from fedns.numerics.cpu.pointwise import derivatives, loss_code, values
from fedns.numerics.formulas import exp
from fedns.numerics.jit import exact_jit

SOURCE = """
from dataclasses import dataclass
from fedns.numerics.formulas import Formulas

@dataclass(frozen=True)
class Scaled(Formulas):
    factor: float = 1.0
    power: int = 2

    def value(self, y, z):
        return self.factor * (z - y) ** self.power

    def derivatives(self, y, z):
        return self.factor * 2.0 * (z - y), self.factor * 2.0 * FACTOR
"""
EVALUATE = """
import numpy as np, scaled
from fedns.numerics.cpu import pointwise
slope, curvature = np.empty(1), np.empty(1)
pointwise.derivatives(pointwise.loss_code(scaled.Scaled(3.0)), np.zeros(1), 0, 1, np.ones(1), slope, curvature)
print(curvature[0], sum(pointwise._derivatives.stats.cache_hits.values()))
"""


@exact_jit
def exponentials(x, out):
    for i in range(x.size):
        out[i] = exp(x[i])


def test_exponential_up_to_where_it_is_infinite():
    x = np.concatenate([np.linspace(-700.0, 709.78, 5001), [0.0, -1e300, 709.79, 1e4, np.inf, np.nan]])
    out = np.empty_like(x)
    exponentials(x, out)
    np.testing.assert_allclose(out[:5002], np.exp(x[:5002]), rtol=4e-15)
    assert out[5002] < 1e-303
    assert np.isinf(out[5003:5006]).all() and np.isnan(out[5006])


@pytest.mark.slow
def test_what_is_compiled_follows_the_source_and_is_found_on_disk(tmp_path):
    """Another process reads compiled formulas from disk, until the file changes that they are written in."""
    answers, new = [], f"# {os.urandom(8).hex()}\n"  # what an earlier run of this test has compiled is still on disk
    for factor in ("1.0", "1.0", "5.0"):
        (tmp_path / "scaled.py").write_text(new + SOURCE.replace("FACTOR", factor))
        done = subprocess.run(
            [sys.executable, "-c", EVALUATE], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
        )
        answers.append(done.stdout.split())
    assert [answer[0] for answer in answers] == ["6.0", "6.0", "30.0"]
    assert [answer[1] for answer in answers][1:] == ["1", "0"]


def test_fields_are_parameters(tmp_path, monkeypatch):
    (tmp_path / "scaled_in_process.py").write_text(SOURCE.replace("FACTOR", "1.0"))
    monkeypatch.syspath_prepend(tmp_path)
    scaled = importlib.import_module("scaled_in_process").Scaled
    out, curvature = np.empty(3), np.empty(3)
    for factor in (1.0, 4.0):
        code = loss_code(scaled(factor))
        values(code, np.zeros(3), 0, 3, np.arange(3.0), out)
        np.testing.assert_array_equal(out, factor * np.arange(3.0) ** 2)
        derivatives(code, np.zeros(3), 0, 3, np.arange(3.0), out, curvature)
        np.testing.assert_array_equal(curvature, 2 * factor)
    assert isinstance(formulas.type_of(scaled()), types.Type)


def test_a_field_that_is_no_number_is_refused(tmp_path, monkeypatch):
    (tmp_path / "scaled_by_text.py").write_text(SOURCE.replace("FACTOR", "1.0"))
    monkeypatch.syspath_prepend(tmp_path)
    scaled = importlib.import_module("scaled_by_text").Scaled
    with pytest.raises(ValueError, match="could not convert"):
        loss_code(scaled("much"))
