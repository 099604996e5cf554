"""Dependencies point one way, and heavy packages are imported where they belong."""

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import fedns

ROOT = Path(fedns.__file__).parent
# What each package may import, besides itself.
_BELOW_RUNS = {"core", "numerics", "problems", "sketches", "data", "algorithms"}
ALLOWED = {
    "numerics": set(),
    "core": {"numerics"},
    "problems": {"core", "numerics"},
    "sketches": {"core", "numerics"},
    "data": {"core", "numerics"},
    "algorithms": {"core", "numerics", "problems", "sketches"},
    "runs": _BELOW_RUNS,
    "simulation": _BELOW_RUNS | {"runs"},
    "reporting": _BELOW_RUNS,
    "federation": _BELOW_RUNS | {"runs", "reporting", "transports"},
    "transports": {"core", "federation"},
    "comparison": _BELOW_RUNS | {"runs", "simulation", "reporting", "federation", "transports"},
    "studies": _BELOW_RUNS | {"runs", "simulation", "reporting", "federation"},
    "estimators": _BELOW_RUNS | {"runs", "simulation", "federation", "studies"},
    "paper": _BELOW_RUNS | {"runs", "simulation", "reporting", "comparison"},
}
OWNERS = {
    "matplotlib": {"reporting/plots.py"},
    "cupy": {path.relative_to(ROOT).as_posix() for path in (ROOT / "numerics/gpu").glob("*.py")},
    "distributed": {"simulation/cluster.py"},
    "llvmlite": {
        f"numerics/cpu/{folder}{part}.py"
        for folder, parts in (
            ("", ("formulas", "parts", "pointwise", "simd")),
            ("narrow/", ("rows", "sjlt", "srht")),
            ("packed/", ("block", "groups", "ones")),
        )
        for part in parts
    },
    "flwr": {
        f"transports/flower/{part}.py"
        for part in ("client", "connection", "door", "server", "superlink", "turn_format", "turns")
    },
    "nvflare": {f"transports/nvflare/{part}.py" for part in ("client", "incoming", "kept", "processes", "server")},
}


def imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_dependencies_point_one_way():
    wrong = []
    for package, allowed in ALLOWED.items():
        for path in (ROOT / package).rglob("*.py"):
            for name in imports_of(path):
                parts = name.split(".")
                if parts[0] == "fedns" and len(parts) > 1 and parts[1] in ALLOWED and parts[1] not in allowed | {package}:
                    wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_heavy_packages_have_one_home():
    wrong = []
    for path in ROOT.rglob("*.py"):
        place = path.relative_to(ROOT).as_posix()
        for name in imports_of(path):
            homes = OWNERS.get(name.split(".")[0])
            if homes is not None and place not in homes:
                wrong.append(f"{place} imports {name}")
    assert not wrong


def test_kernels_are_reached_through_the_backend():
    wrong = []
    for path in ROOT.rglob("*.py"):
        place = path.relative_to(ROOT).as_posix()
        if not place.startswith("numerics/"):
            wrong += [f"{place} imports {name}" for name in imports_of(path) if name.startswith("fedns.numerics.cpu")]
    assert not wrong


def test_nothing_outside_transports_names_an_engine():
    """Other packages find engines through the registry; only extras of the package and the documentation name them."""
    named = re.compile("flower|flwr|nvflare", re.IGNORECASE)
    others = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] != "transports"]
    wrong = [f"{path.relative_to(ROOT)}: {match.group()}" for path in others for match in named.finditer(path.read_text())]
    assert not wrong


def test_transports_are_reached_through_their_registry():
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] != "transports":
            reached = {name for name in imports_of(path) if name.startswith("fedns.transports")}
            assert reached <= {"fedns.transports.TRANSPORTS", "fedns.transports.BUILT_IN"}, path


def test_nothing_pickles():
    for path in ROOT.rglob("*.py"):
        assert not any(name.split(".")[0] in ("pickle", "cloudpickle", "dill", "marshal") for name in imports_of(path)), path


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, fedns; print([m for m in ('numpy', 'numba', 'scipy', 'sklearn', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_waits_for_nothing_heavy():
    code = "import sys, fedns.cli; print(sorted({'numpy', 'scipy', 'numba', 'importlib.metadata'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_exists():
    for name in fedns.__all__:
        assert getattr(fedns, name) is not None


PUBLIC_ALL_THE_SAME = {"_asdict", "_exit", "_fields", "_replace", "_unary_unary"}  # of named tuples, of os, of Flower


def test_no_module_touches_the_private_names_of_another():
    """A name with an underscore is imported nowhere, and as an attribute it is one that the same file makes."""
    wrong = []
    for path in ROOT.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
        own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
        used = {node.attr for node in nodes if isinstance(node, ast.Attribute)} - own - PUBLIC_ALL_THE_SAME
        used |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
        wrong += [f"{path.relative_to(ROOT)}: {name}" for name in used if name.startswith("_") and not name.endswith("__")]
    assert not wrong


def test_every_hop_in_the_picture_exists():
    """The way of a row in docs/architecture.md names modules, classes and functions."""
    text = (ROOT.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = text.split("```")[1]
    names = [name for name in re.findall(r"\b[a-z]+(?:\.\w+)+", picture) if (ROOT / name.split(".")[0]).is_dir()]
    assert len(names) > 12
    for name in names:
        module, rest = f"fedns.{name}", []
        while find_spec_or_none(module) is None:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
        found = importlib.import_module(module)
        for part in rest:
            found = getattr(found, part)


def find_spec_or_none(module: str) -> object:
    try:
        return importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
