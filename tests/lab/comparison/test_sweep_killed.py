"""A sweep that is killed at any point and started again ends as one that was not."""

import json
import random
import signal
import subprocess
import sys

import pytest
from tests.processes import PATIENCE_SECONDS, wait_until
from tests.processes import start as start_process

TEXT = """
methods = ["fednewton", "gd", "fedns", "fedavg"]
split = ["iid", "sorted"]
dataset = "synthetic:rows=3000,columns=12"
rounds = 60
trials = 3
clients = 6
"""
CASES = 2


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("killed") / "sweep.toml"
    path.write_text(TEXT)
    return path


def start(config, folder):
    command = [sys.executable, "-m", "fedns.cli", "run", str(config), "--out", str(folder), "--quiet"]
    return start_process(command, stderr=subprocess.PIPE)


def rounds_on_disk(folder):
    """The rounds of each case, as far as their lines are complete."""
    found = {}
    for path in sorted(folder.glob("*/rounds.jsonl")):
        text = path.read_text()
        found[path.parent.name] = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return found


def ended_on_disk(folder):
    """The runs that have ended, with their rounds, seconds and all."""
    kept = {}
    for case, lines in rounds_on_disk(folder).items():
        endings = folder / case / "runs.jsonl"
        text = endings.read_text() if endings.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():
            run = json.loads(line)
            of = (run["method"], run["trial"])
            kept[case, of] = [entry for entry in lines if (entry["method"], entry["trial"]) == of]
    return kept


def without_seconds(lines):
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def kill_after(process, folder, lines):
    """SIGKILL once so many rounds are on disk; whether it came to that."""

    def far_enough():
        return sum(map(len, rounds_on_disk(folder).values())) >= lines

    wait_until(lambda: far_enough() or process.poll() is not None, f"{lines} rounds are on disk", 0.002)
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def undisturbed(config):
    folder = config.parent / "whole"
    process = start(config, folder)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said
    return rounds_on_disk(folder)


@pytest.mark.parametrize("points", [2, pytest.param(8, marks=pytest.mark.nightly)])
def test_killed_at_random_points(points, config, undisturbed):
    folder = config.parent / f"killed-{points}"
    total = sum(map(len, undisturbed.values()))
    draw = random.Random(7)
    kills, ended = 0, {}
    for point in sorted(draw.sample(range(1, total), points)):
        process = start(config, folder)
        kills += kill_after(process, folder, point)
        # What has ended must still be there later, to the last digit of its seconds: it was not run again.
        now = ended_on_disk(folder)
        assert all(now[run] == lines for run, lines in ended.items())
        ended = now
    process = start(config, folder)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said
    assert kills >= points // 2
    after = ended_on_disk(folder)
    assert ended and all(after[run] == lines for run, lines in ended.items())
    again = rounds_on_disk(folder)
    assert len(again) == CASES
    for case, lines in undisturbed.items():
        assert without_seconds(again[case]) == without_seconds(lines)


def test_ctrl_c_keeps_what_was_finished_and_the_next_start_goes_on(config, undisturbed):
    for attempt in range(5):  # the sweep may be faster than the signal
        folder = config.parent / f"interrupted-{attempt}"
        process = start(config, folder)
        wait_until(lambda: ended_on_disk(folder), "a run has ended", 0.002)  # noqa: B023
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode in (0, 130)
        if process.returncode == 130:
            break
    assert process.returncode == 130
    assert ended_on_disk(folder)
    process = start(config, folder)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    for case, lines in rounds_on_disk(folder).items():
        assert without_seconds(lines) == without_seconds(undisturbed[case])
