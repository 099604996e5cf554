"""Tasks on several processes."""

import os
import time

import pytest
from tests.processes import PATIENCE_SECONDS, wait_until

from fedns.core.errors import DataError, FednsError
from fedns.lab.comparison.workers import Task, run_tasks
from fedns.numerics import parallel


def square(number, say):
    say(f"squaring {number}")
    return number * number, os.getpid()


def refuse(say):
    raise DataError("no such thing")


def die(say):
    os._exit(9)


def sleep(pid_file, say):
    pid_file.with_suffix(".partial").write_text(str(os.getpid()))
    pid_file.with_suffix(".partial").replace(pid_file)
    time.sleep(2 * PATIENCE_SECONDS)


def await_file(path, say):
    wait_until(path.exists, f"there is {path.name}")


def threads(say):
    return parallel._threads


@pytest.mark.parametrize("processes", [1, 2])
def test_every_task_gives_its_result_and_is_heard(processes):
    heard = []
    tasks = [Task(str(number), square, (number,)) for number in range(5)]
    found = {task.label: result for task, result in run_tasks(tasks, lambda t, text: heard.append(text), processes)}
    assert {label: result for label, (result, _) in found.items()} == {str(n): n * n for n in range(5)}
    assert sorted(heard) == [f"squaring {n}" for n in range(5)]
    assert all((process == os.getpid()) == (processes == 1) for _, process in found.values())


def test_errors_come_back_with_the_name_of_the_task():
    tasks = [Task("bad", refuse), Task("good", square, (2,))]
    with pytest.raises(FednsError, match="bad: no such thing"):
        list(run_tasks(tasks, lambda task, text: None, 2))


def test_a_process_that_is_ended_is_noticed():
    tasks = [Task("victim", die), Task("good", square, (2,))]
    with pytest.raises(FednsError, match="victim: the process that worked on it was ended"):
        list(run_tasks(tasks, lambda task, text: None, 2))


def test_leaving_early_ends_what_is_still_running(tmp_path):
    pid = tmp_path / "pid"
    tasks = [Task("long", sleep, (pid,)), Task("short", await_file, (pid,))]
    results = run_tasks(tasks, lambda task, text: None, 2)
    assert next(results)[0].label == "short"
    os.kill(int(pid.read_text()), 0)  # it is there
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_cores_are_shared_out():
    cores = os.cpu_count() or 1
    found = [given for _, given in run_tasks([Task("a", threads), Task("b", threads)], lambda task, text: None, 2)]
    assert found == [max(1, cores // 2)] * 2
