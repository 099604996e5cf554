"""Dependencies point one way, and heavy packages are imported where they belong."""

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedns

ROOT = Path(fedns.__file__).parent
# The rooms, lowest first: each may import what its line names, and itself. docs/architecture.md lists the same.
_TO_METHODS = {"numerics", "core", "models", "sketches", "methods"}
_TO_STUDIES = _TO_METHODS | {"runs", "simulation", "federation", "studies"}
ALLOWED = {
    "numerics": set(),
    "core": {"numerics"},
    "models": {"numerics", "core"},
    "sketches": {"numerics", "core"},
    "methods": _TO_METHODS,
    "runs": _TO_METHODS,
    "simulation": _TO_METHODS | {"runs"},
    "federation": _TO_METHODS | {"runs"},
    "studies": _TO_STUDIES,
    "reports": _TO_STUDIES,
    "lab": _TO_STUDIES | {"reports"},
    "cli": _TO_STUDIES | {"reports", "lab"},
}
OWNERS = {
    "matplotlib": {"reports/plots.py"},
    "cupy": {path.relative_to(ROOT).as_posix() for path in (ROOT / "numerics/gpu").glob("*.py")},
    "distributed": {"simulation/cluster.py"},
    "llvmlite": {
        f"numerics/cpu/{folder}{part}.py"
        for folder, parts in (
            ("", ("emit", "formulas", "parts", "pointwise", "simd")),
            ("narrow/", ("rows", "sjlt", "srht")),
            ("onehot/", ("block", "groups", "ones")),
        )
        for part in parts
    },
    "flwr": {
        f"federation/transports/flower/{part}.py"
        for part in ("client", "connection", "door", "server", "superlink", "turns")
    },
    "nvflare": {f"federation/transports/nvflare/{part}.py" for part in ("client", "processes", "server", "traffic")},
}


def imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


# Imports that the plan of the rooms does not allow and that are still there. It only ever gets shorter.
STILL_THERE: set[tuple[str, str]] = set()
DOORS = {("studies/pages.py", "fedns.reports.for_results")}  # results come to their pages by one import, in one function


def modules_of(path: Path) -> set[str]:
    """The modules of the package that a file imports anywhere in it, also inside functions."""
    found = set()
    for name in imports_of(path):
        while name.startswith("fedns.") and not (place_of(name).is_dir() or place_of(name).with_suffix(".py").is_file()):
            name = name.rpartition(".")[0]
        if name.startswith("fedns."):
            found.add(name)
    return found


def place_of(module: str) -> Path:
    return ROOT.joinpath(*module.split(".")[1:])


def test_dependencies_point_one_way():
    found, opened = set(), set()
    for room, allowed in ALLOWED.items():
        for path in (ROOT / room).rglob("*.py"):
            place = path.relative_to(ROOT).as_posix()
            for name in modules_of(path):
                reached = name.split(".")[1]
                if (place, name) in DOORS:
                    opened.add((place, name))
                elif reached not in allowed | {room}:
                    assert (room, reached) in STILL_THERE, f"{place} imports {name}"
                    found.add((room, reached))
    assert found == STILL_THERE, "take out of STILL_THERE what is no longer there"
    assert opened == DOORS


def test_every_folder_of_the_package_is_a_room():
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert folders == set(ALLOWED)


def test_the_parts_of_a_room_import_each_other_in_one_direction():
    """In every folder: its files, and the folders in it as wholes. An import inside a function counts."""
    for folder in sorted({path.parent for path in ROOT.rglob("*.py")} - {ROOT}):
        circle = circle_of(parts_of(folder))
        assert not circle, f"{folder.relative_to(ROOT)}: {' -> '.join(circle)}"


def parts_of(folder: Path) -> dict[str, set[str]]:
    """For each file and folder in a folder, which of the others it imports."""
    graph: dict[str, set[str]] = {}
    for path in folder.rglob("*.py"):
        here = path.relative_to(folder).parts[0].removesuffix(".py")
        for name in modules_of(path):
            place = place_of(name)
            if folder in place.parents:
                graph.setdefault(here, set()).add(place.relative_to(folder).parts[0])
    return {part: reached - {part} for part, reached in graph.items() if part != "__init__"}


def circle_of(graph: dict[str, set[str]]) -> list[str]:
    """A way along the edges that comes back to where it began; empty where there is none."""
    finished: set[str] = set()

    def follow(way: list[str]) -> list[str]:
        for part in sorted(graph.get(way[-1], ())):
            if part in way:
                return [*way[way.index(part) :], part]
            if part not in finished and (circle := follow([*way, part])):
                return circle
        finished.add(way[-1])
        return []

    for part in sorted(graph):
        if part not in finished and (circle := follow([part])):
            return circle
    return []


def test_a_folder_has_at_most_sixteen_files():
    """More are a plan that nobody can see; of methods there is one file for each."""
    crowded = {folder.name for folder in ROOT.rglob("*") if len(list(folder.glob("*.py"))) > 16}
    assert crowded == {"methods"}


def test_a_class_has_a_name_of_its_own():
    """Two classes of one name would be two meanings of one word."""
    names = [
        node.name
        for path in ROOT.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    ]
    assert not {name for name in names if names.count(name) > 1}


def test_a_circle_is_found():
    assert circle_of({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle_of({"a": {"b", "c"}, "b": {"c"}}) == []


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
    others = [path for path in ROOT.rglob("*.py") if "transports" not in path.relative_to(ROOT).parts]
    wrong = [f"{path.relative_to(ROOT)}: {match.group()}" for path in others for match in named.finditer(path.read_text())]
    assert not wrong


def test_transports_are_reached_through_their_registry():
    for path in ROOT.rglob("*.py"):
        if "transports" not in path.relative_to(ROOT).parts:
            reached = {name for name in imports_of(path) if name.startswith("fedns.federation.transports")}
            assert reached <= {"fedns.federation.transports.TRANSPORTS", "fedns.federation.transports.BUILT_IN"}, path


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
    for name in (*fedns.__all__, *fedns._HOME_OF):
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


@pytest.mark.parametrize(("page", "fewest"), [("architecture.md", 12), ("reading.md", 30)])
def test_what_a_page_names_is_there(page, fewest):
    """Modules, classes and functions: of the first block of docs/architecture.md, and of all of docs/reading.md."""
    text = (ROOT.parents[1] / "docs" / page).read_text(encoding="utf-8")
    text = text.split("```")[1] if page == "architecture.md" else text
    names = [name for name in re.findall(r"\b[a-z]+(?:\.\w+)+", text) if (ROOT / name.split(".")[0]).is_dir()]
    assert len(names) > fewest
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
