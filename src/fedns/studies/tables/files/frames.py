"""Tables as people keep them: columns by name, of numbers, texts, yes and no, or dates, some of their values missing."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import DataError
from fedns.core.files import text_of_cell
from fedns.core.types import FloatArray
from fedns.studies.tables.files.opening import check_file, format_suffix, open_bytes

Texts = NDArray[np.object_]
MISSING = frozenset({"", "?", ".", "na", "n/a", "#n/a", "nan", "null", "none", "<na>"})
SUFFIXES = frozenset({".csv", ".tsv", ".tab", ".parquet", ".arrow", ".feather"})
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
UNNAMED = "(column {})"  # a column without a name, by its place
_LOOKED_AT = 50  # lines that tell the separator
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_COMMA_NUMBER = re.compile(r"[+-]?[0-9]+,[0-9]+(?:[eE][+-]?[0-9]+)?|[+-]?[0-9]+(?:[eE][+-]?[0-9]+)?", re.ASCII)
_PADDED = re.compile(r"[+-]?0[0-9]")  # 007 is a name, not a number
_DATE = re.compile(r"[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}([T ].*)?|[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{4}", re.ASCII)
_TRUTH = {"true": 1.0, "false": 0.0}
_UNIT = re.compile(r"(?P<name>.*\S)\s*[\[(](?P<unit>[^\[\]()]+)[\])]")


@dataclass(frozen=True, eq=False)
class Column:
    """One column: numbers with NaN where missing, or texts with None."""

    kind: str  # number, bool, text, date or empty
    values: FloatArray | Texts  # (rows,)
    unit: str = ""  # as the file has it

    @property
    def missing(self) -> NDArray[np.bool_]:
        if self.values.dtype.kind == "f":
            return np.isnan(self.values)
        return np.array([value is None for value in self.values], dtype=np.bool_)

    @property
    def numeric(self) -> bool:
        return self.kind in ("number", "bool")

    @property
    def numbers(self) -> FloatArray:
        """The values of a column of numbers, NaN where missing."""
        return np.asarray(self.values, dtype=np.float64)

    @property
    def present(self) -> FloatArray:
        """The numbers that are not missing."""
        return self.numbers[~self.missing]

    def without(self, codes: Collection[float]) -> Column:
        """The column with these numbers taken out, which stand for missing values."""
        if not codes or self.kind != "number":
            return self
        values = np.where(np.isin(self.values, list(codes)), np.nan, self.numbers)
        return Column("empty" if np.isnan(values).all() else "number", values, self.unit)

    def labels(self) -> Texts:
        """Every value as the text that names it as a level, None where missing: 1 and 1.0 are both "1"."""
        if self.kind == "bool":
            named = {1.0: "true", 0.0: "false"}
            return np.array([named.get(value) for value in self.values], dtype=object)
        if self.kind in ("number", "empty"):
            return np.array([None if np.isnan(value) else label_of(value) for value in self.values], dtype=object)
        return self.values  # type: ignore[return-value]

    def counts(self) -> Counter[str]:
        """Count how often each value occurs, by the text that names it."""
        if self.values.dtype.kind != "f":
            return Counter(value for value in self.values if value is not None)
        values, counts = np.unique(self.present, return_counts=True)
        named = Column(self.kind, values).labels()
        return Counter(dict(zip(named, counts.tolist(), strict=True)))

    def rows(self, keep: Any) -> Column:
        return Column(self.kind, self.values[keep], self.unit)


@dataclass(frozen=True, eq=False)
class Frame:
    """A table in memory."""

    columns: Mapping[str, Column]  # in the order of the file
    num_rows: int
    source: str
    notes: tuple[str, ...] = ()  # what the reader had to find out by itself
    lines: NDArray[np.int64] | None = None  # (rows,) where each row stands in a text file

    def place(self, row: int) -> str:
        """Name the place of a row, counted from 0, in its file."""
        return f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"

    def rows(self, keep: Any, source: str) -> Frame:
        """Some of the rows, by mask."""
        columns = {name: column.rows(keep) for name, column in self.columns.items()}
        return Frame(columns, int(np.sum(keep)), source, self.notes, None if self.lines is None else self.lines[keep])


def label_of(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def read_frame(table: Any) -> Frame:
    """A file by its path, or a table in memory: pandas, polars, Arrow, or columns by name."""
    if isinstance(table, Frame):
        return table
    if not isinstance(table, str | Path):
        return _from_arrow(_arrow_table(table), "the table")
    path = Path(table)
    check_file(path)
    suffix = format_suffix(path)
    if suffix in (".parquet", ".arrow", ".feather"):
        return _from_arrow(arrow_file(path), path.name)
    if suffix in (".csv", ".tsv", ".tab", ".txt"):
        return _read_text(path)
    raise DataError(
        f"{path.name}: tables are read from .csv, .tsv, .parquet, .arrow and .feather files, .csv also compressed"
    )


def split_frame(frame: Frame, column: str) -> dict[str, Frame]:
    """One table with a column of sites as one table for each site."""
    if column not in frame.columns:
        raise DataError(f"{frame.source} has no column '{column}' of sites: it has {', '.join(list(frame.columns)[:20])}")
    labels = frame.columns[column].labels()
    if any(label is None for label in labels):
        raise DataError(f"{frame.source}: the column '{column}' of sites is empty in some rows")
    rest = replace(frame, columns={n: c for n, c in frame.columns.items() if n != column})
    sites = dict.fromkeys(labels)
    return {str(site): rest.rows(labels == site, f"{frame.source}, {column} {site}") for site in sites}


def _read_text(path: Path) -> Frame:
    with open_bytes(path) as stream:
        text, notes = _decoded(stream.read(), path.name)
    if not text.strip():
        raise DataError(f"{path.name} is empty: expected a first line of column names")
    separator = _separator(text, path.name)
    if separator != ",":
        notes.append(f"columns are separated by a {_SEPARATORS[separator]}")
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        header = [cell.strip() for cell in next(lines)]
        numbered = [(lines.line_num, row) for row in lines if any(cell.strip() for cell in row)]
        if "'" in text:  # before what a spreadsheet would compute: our own tables have it too
            header = list(map(text_of_cell, header))
            numbered = [(line, list(map(text_of_cell, row))) for line, row in numbered]
    except csv.Error as error:
        raise DataError(f"{path.name}, line {lines.line_num}: {error}") from error
    if not numbered:
        raise DataError(f"{path.name} has column names but no rows")
    if all(NUMBER.fullmatch(name) for name in header):
        raise DataError(f"{path.name} starts with numbers: add a first line of column names")
    for line, row in numbered:
        if len(row) != len(header):
            raise DataError(f"{path.name}, line {line}: {len(row)} cells, but the header has {len(header)}")
    cells_of = zip(*(row for _, row in numbered), strict=True)
    columns = dict(zip(_named(header, path.name), cells_of, strict=True))
    comma = separator != "," and any(_has_decimal_comma(cells) for cells in columns.values())
    if comma:
        notes.append("numbers have a decimal comma")
    found = {name: _from_cells(cells, name, path.name, comma) for name, cells in columns.items()}
    places = np.array([line for line, _ in numbered])
    return Frame(_with_units(found), len(numbered), path.name, tuple(notes), places)


def _decoded(raw: bytes, name: str) -> tuple[str, list[str]]:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16"), ["the file is UTF-16"]
    try:
        text, notes = raw.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        try:
            text, notes = raw.decode("cp1252"), ["the file is not UTF-8 and was read as Windows-1252 (Latin-1)"]
        except UnicodeDecodeError as error:
            raise DataError(f"{name} is neither UTF-8 nor Windows-1252 text: save it as UTF-8") from error
    if "\0" in text:
        raise DataError(f"{name} holds zero bytes: it is not a text table; save it as CSV in UTF-8")
    return text, notes


def _separator(text: str, name: str) -> str:
    """The separator that cuts the first lines into the same number of cells, and into most."""
    start = "\n".join(text.splitlines()[:_LOOKED_AT])
    best, width = "", 1
    for separator in _SEPARATORS:
        try:
            widths = {len(row) for row in csv.reader(io.StringIO(start, newline=""), delimiter=separator) if row}
        except csv.Error:
            continue
        if len(widths) == 1 and (cells := widths.pop()) > width:
            best, width = separator, cells
    if best:
        return best
    first = next((line for line in text.splitlines() if line.strip()), "")
    likely = max(_SEPARATORS, key=first.count)
    if first.count(likely):
        return likely  # rows of unequal length are named by their line later
    raise DataError(f"{name} has one column only: expected columns separated by comma, semicolon, tab or bar")


def _named(header: Sequence[str], source: str) -> list[str]:
    names = [name or UNNAMED.format(place) for place, name in enumerate(header, start=1)]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"{source} has more than one column called '{repeated[0]}': rename one of them")
    return names


def _with_units(columns: dict[str, Column]) -> dict[str, Column]:
    """Units out of names such as `chol [mg/dL]`, where that leaves the names distinct."""
    found = {name: _UNIT.fullmatch(name) for name in columns}
    plain = {name: match["name"] if match else name for name, match in found.items()}
    if len(set(plain.values())) < len(plain):
        return columns
    return {
        plain[name]: Column(column.kind, column.values, match["unit"].strip() if (match := found[name]) else column.unit)
        for name, column in columns.items()
    }


def _has_decimal_comma(cells: Iterable[str]) -> bool:
    there = [cell for cell in map(str.strip, cells) if cell.lower() not in MISSING]
    return any("," in cell for cell in there) and all(_COMMA_NUMBER.fullmatch(cell) for cell in there)


def _from_cells(cells: Sequence[str], name: str, source: str, comma: bool) -> Column:
    texts: list[str | None] = [None if cell.strip().lower() in MISSING else cell.strip() for cell in cells]
    there = [text for text in texts if text is not None]
    if comma and _has_decimal_comma(there):
        texts = [None if text is None else text.replace(",", ".") for text in texts]
        there = [text for text in texts if text is not None]
    elif comma and any("." in text for text in there) and all(NUMBER.fullmatch(text) for text in there):
        raise DataError(
            f"{source}: column '{name}' writes numbers with a point, other columns with a decimal comma: is the point there "
            "for thousands? Write all columns alike"
        )
    return _typed(texts, there, name, source)


def _typed(texts: Sequence[str | None], there: Sequence[str], name: str, source: str) -> Column:
    if not there:
        return Column("empty", np.full(len(texts), np.nan))
    if all(NUMBER.fullmatch(text) for text in there) and not any(_PADDED.match(text) for text in there):
        numbers = np.array([np.nan if text is None else float(text) for text in texts])
        if np.isinf(numbers).any():
            raise DataError(f"{source}: column '{name}' holds a number that is too large")
        return Column("number", numbers)
    if all(text.lower() in _TRUTH for text in there):
        return Column("bool", np.array([np.nan if text is None else _TRUTH[text.lower()] for text in texts]))
    kind = "date" if all(_DATE.fullmatch(text) for text in there) else "text"
    return Column(kind, np.array(texts, dtype=object))


def _pyarrow(what: str) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise DataError(f"{what} needs pyarrow: install it with pip install 'fedns[parquet]'") from error
    return pyarrow


def _arrow_table(table: Any) -> Any:
    pyarrow = _pyarrow("a table in memory")
    try:
        return pyarrow.table(table)
    except (TypeError, ValueError):
        kind = type(table).__name__
        raise DataError(f"a {kind} is not a table: give a path, a pandas or polars frame, or columns by name") from None


def arrow_file(path: Path, function: str = "read_table") -> Any:
    """Read a file by this function of Arrow's reader."""
    pyarrow, suffix = _pyarrow(path.name), format_suffix(path)
    reader = import_module(f"pyarrow.{'parquet' if suffix == '.parquet' else 'feather'}")
    try:
        return getattr(reader, function)(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path.name} cannot be read as {suffix[1:].capitalize()}: {str(error).splitlines()[0]}") from error


def _from_arrow(table: Any, source: str) -> Frame:
    if not table.num_rows:
        raise DataError(f"{source} has no rows")
    names = _named([str(name).strip() for name in table.column_names], source)
    columns = {
        name: _arrow_column(table.column(place), table.schema.field(place), name, source) for place, name in enumerate(names)
    }
    columns.pop("__index_level_0__", None)  # what pandas keeps of a frame's row labels
    return Frame(_with_units(columns), int(table.num_rows), source)


def _arrow_column(chunks: Any, schema: Any, name: str, source: str) -> Column:
    pyarrow = _pyarrow(source)
    types = pyarrow.types
    if types.is_dictionary(chunks.type):  # by way of Python: not every kind of text can be cast out of a dictionary
        chunks = pyarrow.chunked_array([pyarrow.array(chunks.to_pylist())])
    kind = chunks.type
    if types.is_nested(kind):
        raise DataError(f"{source}: column '{name}' holds lists or records: a column has one value in each row")
    unit = (schema.metadata or {}).get(b"unit", b"").decode(errors="replace")
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        numbers = np.array(chunks.cast(pyarrow.float64(), safe=False).to_numpy(), dtype=np.float64)
        if np.isinf(numbers).any():
            raise DataError(f"{source}: column '{name}' holds infinite values")
        empty = bool(np.isnan(numbers).all())
        return Column("empty" if empty else "bool" if types.is_boolean(kind) else "number", numbers, unit)
    if types.is_date(kind) or types.is_timestamp(kind):
        return Column("date", np.array([None if v is None else str(v) for v in chunks.to_pylist()], dtype=object), unit)
    if types.is_null(kind):
        return Column("empty", np.full(len(chunks), np.nan), unit)
    cells = ["" if value is None else str(value) for value in chunks.to_pylist()]
    found = _from_cells(cells, name, source, comma=False)
    return Column(found.kind, found.values, unit)
