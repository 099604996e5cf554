"""Processes that start together compile a kernel once."""

import os
import subprocess
import sys

import pytest
from tests.processes import PATIENCE_SECONDS

_KERNEL = """
from fedns.numerics.jit import jit

@jit
def total(x):
    s = 0.0
    for i in range(x.size):
        s += x[i] ** 2 + abs(x[i]) ** 1.5
    return s
"""
_PROCESS = """
import sys
import numpy as np
from kernel import total
print("ready", flush=True)
sys.stdin.readline()
total(np.ones(5))
print(sum(total.stats.cache_misses.values()), sum(total.stats.cache_hits.values()))
"""


@pytest.mark.slow
def test_a_kernel_is_compiled_by_one_of_several_processes_and_read_by_the_others(tmp_path):
    (tmp_path / "kernel.py").write_text(_KERNEL)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PROCESS], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )
        for _ in range(3)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    counts = sorted(process.communicate(timeout=PATIENCE_SECONDS)[0].split() for process in processes)
    assert counts == [["0", "1"], ["0", "1"], ["1", "0"]]
