"""What the documentation shows works: gallery pages run, links lead somewhere, every page is on the site."""

import re
import runpy
from pathlib import Path

import matplotlib
import pytest

import fedns

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("gallery/*.md")])
GALLERY = [page for page in PAGES if page.parent.name == "gallery" and page.name != "index.md"]


@pytest.mark.slow
@pytest.mark.parametrize("page", GALLERY, ids=lambda page: page.stem)
def test_a_gallery_page_runs(page):
    cells = re.findall(r"```\{code-cell\} python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert cells
    matplotlib.use("agg")
    names: dict[str, object] = {"__name__": "__gallery__"}
    for cell in cells:
        exec(compile(cell, str(page), "exec", dont_inherit=True), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)\s]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).is_file(), f"{page.name}: {target}"


def test_every_page_is_in_a_table_of_contents():
    listed = set()
    for page in PAGES:
        for contents in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
            entries = [line.strip() for line in contents.splitlines() if line.strip() and not line.startswith(":")]
            listed |= {(page.parent / entry).relative_to(DOCS).as_posix() for entry in entries}
    assert listed - {"reference/index"} == {page.relative_to(DOCS).with_suffix("").as_posix() for page in PAGES} - {"index"}


def test_every_public_name_has_a_page_of_the_reference(tmp_path, monkeypatch):
    names = runpy.run_path(str(DOCS / "conf.py"))
    monkeypatch.setitem(names["write_reference"].__globals__, "HERE", tmp_path)
    names["write_reference"]()
    pages = "".join(page.read_text(encoding="utf-8") for page in (tmp_path / "reference").glob("*.rst"))
    missing = [name for name in fedns._HOME_OF if f"fedns.{name}\n" not in pages and name != "reducers"]
    assert not missing and "fedns.core.messages.reducers" in pages


ROOT = DOCS.parent
WRITTEN = [*PAGES, *ROOT.glob("*.md")]
FOLDERS = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith((".", "runs")))
NAMED = re.compile(rf"`(?:[a-z]+ )*(?!docs/_build)((?:{FOLDERS})/[\w./*-]+|[\w-]+(?:/[\w-]+)+\.py)[ `]")


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.stem)
def test_a_file_or_folder_of_this_tree_that_is_named_is_there(page):
    """From the root, or from anywhere above it: `tests/stranger`, `numerics/small_ints.py`."""
    for named in NAMED.findall(page.read_text(encoding="utf-8")):
        inside = [] if named.endswith("/") else ROOT.glob(f"src/**/{named}")
        assert any(ROOT.glob(named.rstrip("/"))) or any(inside), f"{page.name}: {named}"
