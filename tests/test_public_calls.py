"""Every public call refuses what it cannot use with one sentence, and its help names every parameter."""

import functools
import inspect
import re

import numpy as np
import pytest
from tests.conftest import make_shards

import fedns

ROWS = np.random.default_rng(0).normal(size=(30, 3))
LABELS = np.where(ROWS[:, 0] > 0, 1.0, -1.0)
SHARDS = fedns.split(ROWS, LABELS, 3)
PROBLEM = fedns.Problem()
SIZED = ("SRHT", "SJLT", "Gaussian", "Rademacher", "RowSampling", "RandomFourier", "OrthogonalRandom")
# Results that users read, what methods are built from, and a comparison, whose settings a `Spec` checks as a whole.
NOT_ASKED = {
    "Clients", "Cohort", "Comparison", "Dataset", "History", "Model", "Optimum", "Outcome", "Ragged", "Record", "Shards",
    "State", "StudyFit", "compare", "on_client", "wire", "Spec",
}  # fmt: skip
ESTIMATORS = {"FederatedCox", "FederatedGLM", "FederatedLogisticRegression", "FederatedRidge"}  # check when they are fitted
NOTHING_FITS = {"object": object(), "bytes": b"x"}
BAD = {
    "2.5": 2.5, "-1": -1, "nan": np.nan, "inf": np.inf, "None": None, "True": True, "text": "srht", "pair": (ROWS, LABELS),
    "empty list": [], "empty dict": {}, **NOTHING_FITS,
}  # fmt: skip
# What a parameter declared like this must refuse, whatever it is called.
REFUSED = {
    "int": {"2.5", "nan", "inf", "None", "True", "text", "pair", "empty list"},
    "float": {"nan", "inf", "None", "True", "text", "pair", "empty list"},
    "bool": {"2.5", "nan", "None", "text", "pair", "empty list"},
    "str": {"2.5", "nan", "None", "True", "pair", "empty list"},
    "Sketch": set(BAD), "Search": set(BAD), "Problem": set(BAD), "Shards": set(BAD), "Algorithm": set(BAD),
    "Loss": set(BAD), "Ridge": set(BAD), "FeatureMap": set(BAD), "Cohort": set(BAD), "Dataset": set(BAD),
}  # fmt: skip


@functools.cache
def needed():
    """Arguments without a default, by name of the call."""
    cohort = fedns.simulated_cohort(PROBLEM, SHARDS)
    history = fedns.simulate(fedns.GIANT(), PROBLEM, SHARDS, rounds=1, optimum="find")
    return {name: {"size": 4} for name in SIZED} | {
        "MapRule": {"kind": "fourier", "size": 4},
        "Nystroem": {"landmarks": ROWS},
        "Study": {"formula": "y ~ x", "family": "gaussian"},
        "as_binary": {"targets": LABELS},
        "effective_dimension": {"problem": PROBLEM, "shards": SHARDS},
        "estimate_effective_dimension": {"problem": PROBLEM, "cohort": cohort},
        "federated_landmarks": {"cohort": cohort, "size": 2},
        "federated_width": {"cohort": cohort},
        "fit_study": {"study": fedns.Study("y ~ x", "gaussian"), "tables": {}},
        "load": {"name": "digits"},
        "plot_histories": {"runs": [history]},
        "pooled_optimum": {"problem": PROBLEM, "shards": SHARDS},
        "read_runs": {"folder": "nowhere"},
        "scale": {"shards": SHARDS, "how": "none"},
        "simulate": {"algorithm": fedns.FedNewton(), "problem": PROBLEM, "shards": SHARDS, "rounds": 1},
        "simulated_cohort": {"problem": PROBLEM, "shards": SHARDS},
        "split": {"features": ROWS, "targets": LABELS, "clients": 3},
        "split_dataset": {"dataset": fedns.load("diabetes"), "clients": 3},
    }


def public_calls():
    for name in fedns._HOME_OF:
        call = getattr(fedns, name)
        concrete = inspect.isclass(call) and not inspect.isabstract(call) and not issubclass(call, Exception)
        if inspect.isfunction(call) or (concrete and hasattr(call, "__dataclass_fields__")):
            yield name, call


def parameters():
    for name, call in public_calls():
        if name not in NOT_ASKED | ESTIMATORS:
            yield from ((name, parameter) for parameter in inspect.signature(call).parameters)


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch):
    """The sentence about an unknown data set lists those at hand, however many these are."""
    monkeypatch.delenv("FEDNS_DATA", raising=False)


@pytest.mark.parametrize(("name", "parameter"), list(parameters()))
def test_a_bad_value_is_refused_with_a_sentence(name, parameter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call = getattr(fedns, name)
    declared = str(inspect.signature(call).parameters[parameter].annotation)
    must = REFUSED.get(declared.removesuffix(" | None"), set()) | set(NOTHING_FITS)
    must -= {"None"} if declared.endswith(" | None") or declared == "Any" else set()
    for label, value in BAD.items():
        try:
            call(**{**needed().get(name, {}), parameter: value})
        except fedns.FednsError as error:
            assert "\n" not in str(error) and 10 < len(str(error)) < 260, str(error)
        else:
            assert label not in must, f"{name}({parameter}={value!r}) was accepted"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: fedns.FedNS(sketch="srht"), "sketch of FedNS must be Sketch, such as fedns.SRHT(16), got 'srht'"),
        (lambda: fedns.SRHT(2.5), "size of SRHT must be a whole number >= 1, got 2.5"),
        (lambda: fedns.SRHT(0), "size of SRHT must be a whole number >= 1, got 0"),
        (lambda: fedns.FedNewton(step_size=np.nan), "step_size of FedNewton must be a finite number > 0, got nan"),
        (lambda: fedns.FedNewton(step_size=-1), "step_size of FedNewton must be a finite number > 0, got -1"),
        (lambda: fedns.FedNS(step_size=0), "step_size of FedNS must be a finite number > 0, got 0"),
        (lambda: fedns.FedNS(line_search="aggregate"), "line_search of FedNS must be Search, such as fedns.ArmijoSearch()"),
        (lambda: fedns.SHED(eigenpairs_per_client=(1, 2.5)), "must be a tuple, each entry a whole number, got (1, 2.5)"),
        (lambda: fedns.Problem("logistic"), "loss of Problem must be Loss, such as fedns.Logistic(), got 'logistic'"),
        (lambda: fedns.Problem(penalty=0.1), "penalty of Problem must be Penalty, such as fedns.Ridge(1e-3), got 0.1"),
        (lambda: fedns.Ridge(-1.0), "strength of Ridge must be a finite number >= 0, got -1.0"),
        (lambda: simulate(rounds=2.5), "rounds of simulate must be a whole number, got 2.5"),
        (lambda: simulate(rounds=-1), "rounds must be a whole number >= 0, got -1"),
        (lambda: simulate(tol=-1.0), "suboptimality must be a finite number >= 0 or None, got -1.0"),
        (lambda: simulate(participation=0.0), "participation"),
        (lambda: simulate(threads=0), "threads of simulate must be a whole number >= 1 or None, got 0"),
        (lambda: simulate(wire="float16"), "wire precision must be float64 or float32, got 'float16'"),
        (lambda: simulate(memory_budget_bytes=0), "memory_budget_bytes of simulate must be a whole number >= 1, got 0"),
        (lambda: simulate(shards=(ROWS, LABELS)), "must be Shards, such as fedns.split(X, y, clients=10), got a tuple"),
        (lambda: simulate(start=[1.0]), "start must have 3 coefficients"),
        (lambda: simulate(optimum="x"), "'find'"),
        (lambda: fedns.split(ROWS, LABELS, how="group"), "this data set has no natural sites"),
        (lambda: fedns.split(ROWS, LABELS), "the number of clients must be at least 1, got None"),
        (lambda: fedns.split(ROWS[0], LABELS, 2), "features must be a table of rows and columns"),
        (lambda: fedns.split(ROWS, LABELS, 3, sample_weights=[1.0]), "sample weights have shape (1,)"),
        (lambda: fedns.read_runs("folder"), "folder"),
        (lambda: fedns.effective_dimension(PROBLEM, SHARDS, [0.0]), "w must be 3 finite numbers"),
    ],
)  # fmt: skip
def test_the_sentence_names_the_thing(call, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fedns.FednsError, match=re.escape(sentence)):
        call()


def simulate(**settings):
    return fedns.simulate(**{**needed()["simulate"], **settings})


def test_numpys_numbers_and_lists_are_welcome():
    assert fedns.SRHT(np.int32(4)).size == 4 and fedns.Ridge(np.float32(0.5), [1, 2.0]).factors == [1, 2.0]
    history = simulate(rounds=np.int64(1), tol=0, start=[0, 0, 0], shards=make_shards(columns=3))
    assert len(history.records) == 2


def test_groups_need_no_number_of_clients():
    assert fedns.split(ROWS, LABELS, how="group", groups=np.repeat([0, 1, 2], 10)).num_clients == 3


# Made by the library, never by a caller.
MADE_HERE = {"Clients", "Comparison", "Ragged", "Shards", "State", "StudyFit"}


@pytest.mark.parametrize("name", [name for name, _ in public_calls() if name not in MADE_HERE])
def test_help_has_a_line_for_every_parameter(name):
    call = getattr(fedns, name)
    lines = re.findall(r"^- (\w+): \S", inspect.getdoc(call), flags=re.MULTILINE)
    assert lines == list(inspect.signature(call).parameters)
