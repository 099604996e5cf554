"""What people read is short: sentences of at most 40 words, lines of at most 120 characters."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
LONGEST_SENTENCE, LONGEST_LINE = 40, 120
# A full stop ends a sentence; a colon or semicolon where what follows begins like one.
ENDS = re.compile(r"[.!?][)\"*]*\s+(?=\S)|[:;]\s+(?=[A-Z*`\[(])")


def prose(text: str) -> Iterator[str]:
    """Paragraphs and items of lists, each as one line; no code, tables, headings or comments."""
    text = re.sub(r"^( *)(```|~~~).*?^ *\2 *$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    lines = "\n".join("" if line.lstrip().startswith(("|", "#")) else line for line in text.splitlines())
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)", lines):
        if block.strip():
            yield " ".join(block.split())


def sentences(text: str) -> Iterator[str]:
    for block in prose(text):
        yield from ENDS.split(re.sub(r"`[^`]*`|\]\([^)]*\)", "`x`", block))


def words(sentence: str) -> int:
    return sum(any(letter.isalnum() for letter in word) for word in sentence.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_sentence_is_long(page):
    text = page.read_text(encoding="utf-8")
    assert not [f"{words(one)} words: {one}" for one in sentences(text) if words(one) > LONGEST_SENTENCE]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_line_is_long_where_markdown_can_break_it(page):
    lines = enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
    assert not [f"{number}: {line}" for number, line in lines if len(line) > LONGEST_LINE and line.lstrip()[:1] != "|"]


LONG = " ".join(["word"] * 41)


def test_a_long_sentence_is_found():
    found = [words(one) for one in sentences(f"Short. {LONG}.\n\n- {LONG}; and more.\n- An item. {LONG}: `code`")]
    assert [count for count in found if count > LONGEST_SENTENCE] == [41, 43, 41]


def test_code_tables_headings_and_ends_of_sentences_are_known():
    half = " ".join(["word"] * 25)
    text = f"# {LONG}\n\n| {LONG} |\n\n```\n{LONG}\n```\n\n{half}. {half}: `code` {half}\n\n1. {half}\n2. `{LONG}` {half}"
    assert max(words(one) for one in sentences(text)) == 26
