"""What `import fedns` offers: few names first, the rest in submodules, and the same for type checkers as at run time."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import fedns

SUBMODULES = ("contracts", "methods", "models", "sketches")
SELDOM = {  # found in fedns, listed in no submodule
    "Comparison", "Dataset", "MlflowObserver", "TensorBoardObserver", "estimate_effective_dimension", "federated_landmarks",
    "federated_width", "simulated_cohort",
}  # fmt: skip


def test_few_names_are_listed_and_all_of_them_are_found():
    assert dir(fedns) == sorted({*fedns.__all__, "__version__"})
    assert len(fedns.__all__) <= 60
    assert set(SUBMODULES) < set(fedns.__all__) <= {*SUBMODULES, *fedns._HOME_OF}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fedns.nothing  # noqa: B018


def test_what_is_not_listed_has_a_submodule_that_lists_it():
    listed = {name for one in SUBMODULES for name in dir(import_module(f"fedns.{one}"))}
    assert fedns._HOME_OF.keys() - set(fedns.__all__) - listed == SELDOM


@pytest.mark.parametrize("submodule", SUBMODULES)
def test_a_submodule_has_the_same_things(submodule):
    module = import_module(f"fedns.{submodule}")
    for name in getattr(module, "__all__", dir(module)):
        if name in fedns._HOME_OF:
            assert getattr(module, name) is getattr(fedns, name), name


def test_type_checkers_see_the_same_names():
    stub = Path(fedns.__file__).with_suffix(".pyi")
    lines = [line for line in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(line, ast.ImportFrom)]
    found = {name.name: line.module for line in lines for name in line.names if name.name == name.asname}
    assert found == fedns._HOME_OF | dict.fromkeys(SUBMODULES, "fedns")
    assert stub.with_name("py.typed").is_file()


def test_a_submodule_is_there_without_being_imported():
    code = "import fedns; print(fedns.models.Gamma.__name__, fedns.contracts.wire.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Gamma", "wire"]
