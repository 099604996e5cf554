"""The documentation site: the pages of this folder, the gallery run anew, and every public name from its docstring."""

import re
from pathlib import Path
from typing import Any

import fedns

project = "fedns"
copyright = "the fedns authors"
version = release = fedns.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
html_theme = "furo"
html_theme_options = {"dark_css_variables": {"mystnb-source-border-color": "#3f4447"}}  # white unless said
html_title = f"fedns {release}"
html_show_sphinx = False
html_show_sourcelink = False
exclude_patterns = ["_build"]

myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_raise_on_error = True  # a gallery page whose code fails fails the build
nb_execution_timeout = 300

default_role = "code"  # docstrings write `name` for a name
autodoc_typehints = "none"  # docstrings say what every parameter is
autodoc_member_order = "bysource"
copybutton_prompt_text = "$ "

HERE = Path(__file__).parent

# Pages of the reference, and the packages whose public names stand on each.
REFERENCE = {
    "studies": ("Studies and estimators", ("studies",)),
    "simulation": (
        "Runs and results",
        ("simulation", "lab", "runs", "reports", "core.history", "core.termination", "core.errors"),
    ),
    "methods": ("Methods", ("methods",)),
    "models": ("Models: losses, families, penalties, feature maps", ("models",)),
    "sketches": ("Sketches", ("sketches",)),
    "data": ("Data", ("lab.data", "studies.tables.labels", "studies.tables.scaling", "core.shards")),
    "federation": ("Federations", ("federation",)),
    "extending": ("Writing your own method", ("core", "numerics")),
}


def page_of(home: str) -> str:
    """The page with the longest prefix of a name's module; a module that fits none is a mistake in the table above."""
    fits = [
        (len(package), page)
        for page, (_, packages) in REFERENCE.items()
        for package in packages
        if f"{home}.".startswith(f"fedns.{package}.")
    ]
    if not fits:
        raise RuntimeError(f"docs/conf.py: no page of the reference takes the names of {home}")
    return max(fits)[1]


def write_reference() -> None:
    """One page for each group of public names, from where the package says that they live."""
    names: dict[str, list[str]] = {page: [] for page in REFERENCE}
    for name, home in fedns._HOME_OF.items():
        names[page_of(home)].append(name)
    folder = HERE / "reference"
    folder.mkdir(exist_ok=True)
    for page, (title, _) in REFERENCE.items():
        entries = "\n".join(entry(name) for name in sorted(names[page], key=str.lower))
        (folder / f"{page}.rst").write_text(f"{title}\n{'=' * len(title)}\n\n{entries}", encoding="utf-8")
    listed = "\n".join(f"   {page}" for page in REFERENCE)
    title = "Python reference\n================\n\n"
    head = title + "Every public name. ``help(fedns.NAME)`` prints the same text.\n\n.. toctree::\n\n"
    (folder / "index.rst").write_text(head + listed + "\n", encoding="utf-8")


def entry(name: str) -> str:
    thing = getattr(fedns, name)
    if isinstance(thing, type):
        return f".. autoclass:: fedns.{name}\n   :members:\n"
    if type(thing).__name__ == "module":
        return f".. automodule:: {thing.__name__}\n   :members:\n"
    if callable(thing) and hasattr(thing, "__code__"):
        return f".. autofunction:: fedns.{name}\n"
    return f".. autodata:: fedns.{name}\n   :no-value:\n"


def as_plain_text(_app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with formulas in them: |w|, S_j' and x* are no markup."""
    lines[:] = [re.sub(r"(?<=\w)_(?=\W|$)|[|*]", lambda mark: "\\" + mark[0], line) for line in lines]


def skips(_app: Any, _what: str, name: str, _obj: Any, skip: bool, _options: Any) -> bool:
    """What scikit-learn writes into its estimators is described there."""
    return skip or (name.startswith("set_") and name.endswith("_request"))


write_reference()


def setup(app: Any) -> None:
    app.connect("autodoc-skip-member", skips)
    app.connect("autodoc-process-docstring", as_plain_text)
