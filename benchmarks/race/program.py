"""A contender by path: any program that reads LIBSVM text."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.race.contender import Attempt, Contender, Fit, FloatArray, Task
from sklearn.datasets import dump_svmlight_file

LIMIT_SECONDS = 60.0


def program(stated: str) -> Contender:
    """From `NAME=COMMAND`, where {data}, {model}, {cost}, {strength} and {tolerance} stand for what it is given.

    It writes its coefficients to {model}: numbers, or a model of LIBLINEAR. Its clock is the process's, reading included.
    """
    name, _, command = stated.partition("=")
    if not name or "{data}" not in command or "{model}" not in command:
        raise SystemExit(f"--peer needs NAME=COMMAND with {{data}} and {{model}} in the command, got {stated!r}")

    def prepare(task: Task, features: Any) -> Attempt:
        text = BytesIO()
        dump_svmlight_file(features, task.shards.targets, text, zero_based=False)

        def fit(tolerance: float) -> Fit:
            with tempfile.TemporaryDirectory() as folder:
                data, model = Path(folder) / "rows.txt", Path(folder) / "model.txt"
                data.write_bytes(text.getbuffer())
                given = {"data": data, "model": model, "cost": task.cost, "strength": task.strength, "tolerance": tolerance}
                words = [word.format(**given) for word in shlex.split(command)]
                started = time.perf_counter()
                done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_SECONDS)
                seconds = time.perf_counter() - started
                if done.returncode or not model.exists():
                    said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
                    raise RuntimeError(f"ended with {done.returncode}, saying: {said[-1]}")
                return Fit(coefficients_in(model.read_text(encoding="utf-8")), seconds=seconds)

        return fit

    efforts = Contender.efforts if "{tolerance}" in command else (None,)
    return Contender(
        name, "", "", prepare, efforts, ("compressed",), LIMIT_SECONDS, warm_up=None, note="a program, reading included"
    )


def coefficients_in(text: str) -> FloatArray:
    """All numbers of a text; of a model of LIBLINEAR those after its line `w`, for +1 against -1."""
    lines = text.splitlines()
    if "w" not in lines:
        return np.array([float(word) for word in text.split()])
    values = np.array([float(word) for line in lines[lines.index("w") + 1 :] for word in line.split()])
    labels = next(line.split()[1:] for line in lines if line.startswith("label"))
    return values if float(labels[0]) > float(labels[1]) else -values
