"""What a hostile site may send in the handshake: it is refused, or it is a description."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.studies.conftest import made_up

from fedns.core.errors import MessageError
from fedns.studies.design.agreement import Agreement
from fedns.studies.design.site_table import HIDDEN, SiteTable
from fedns.studies.handshake.conflicts import conflicts, remarks
from fedns.studies.handshake.description import Description, describe, json_bytes
from fedns.studies.handshake.table_summary import read_json, summary_of
from fedns.studies.study import Study
from fedns.studies.tables.files.frames import read_frame

STUDY = Study("ill ~ age + arm", "binomial", event=("case",), non_event=("control",))
HONEST = describe(SiteTable(STUDY, read_frame(made_up()["north"])))
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_an_honest_description_survives_the_wire():
    told = Description(read_json(json_bytes(HONEST.schema)), HONEST.counts, HONEST.moments)
    summary = summary_of(STUDY, "north", told)
    assert summary.rows == 120 and summary.columns["arm"].levels == ("high", "low", "placebo")
    assert not conflicts(STUDY, [summary])


def paths(value, at=()):
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*at, key))


@settings(max_examples=300)
@given(st.sampled_from(list(paths(HONEST.schema))[1:]), JUNK)
def test_any_part_replaced_by_anything(path, junk):
    schema = copy.deepcopy(dict(HONEST.schema))
    inside = schema
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = junk
    try:
        summary = summary_of(STUDY, "north", Description(schema, HONEST.counts, HONEST.moments))
    except MessageError:
        return
    found = conflicts(STUDY, [summary]) + remarks(STUDY, [summary])  # whatever was admitted can be compared and shown
    assert all(sentence.isprintable() for sentence in found)


@settings(max_examples=200)
@given(st.binary(max_size=200) | JUNK.map(lambda value: json_bytes(value).tobytes()) | st.text(max_size=20).map(str.encode))
def test_any_bytes(data):
    """What is JSON comes out as it is, and anything else is refused in a sentence."""
    letters = np.frombuffer(data, dtype=np.uint8)
    try:
        expected = json.loads(data)
    except ValueError:
        with pytest.raises(MessageError, match=r"^a description is not JSON$"):
            read_json(letters)
    else:
        assert repr(read_json(letters)) == repr(expected)


def test_what_is_too_long_too_short_or_negative():
    with pytest.raises(MessageError, match="too long"):
        read_json(np.zeros(2**21, dtype=np.uint8))
    with pytest.raises(MessageError, match="counts"):
        summary_of(STUDY, "north", Description(HONEST.schema, HONEST.counts[:-1], HONEST.moments))
    with pytest.raises(MessageError, match="negative count"):
        summary_of(STUDY, "north", Description(HONEST.schema, np.full_like(HONEST.counts, -7), HONEST.moments))
    with pytest.raises(MessageError, match="moments"):
        summary_of(STUDY, "north", Description(HONEST.schema, HONEST.counts, -HONEST.moments))
    with pytest.raises(MessageError, match="another study"):
        summary_of(STUDY, "north", Description({**HONEST.schema, "study": "x"}, HONEST.counts, HONEST.moments))


AGREED = Agreement(
    STUDY.digest, {"arm": ("high", "low")}, {"age": (50.0, 10.0)}, {"age": 51.0}, {"bs(age)": (0.0, 50.0, 99.0)},
    {"poly(age)": ((0.0, 1.0), (1.0, 0.0, 1.0))}, 2.0, ((1.0, 2.0), (3.0, 4.0)),
)  # fmt: skip


def numbers_in(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return [value] if isinstance(value, float) else [number for one in inner for number in numbers_in(one)]


@settings(max_examples=300)
@given(st.sampled_from(list(paths(json.loads(AGREED.to_json())))[1:]), JUNK)
def test_any_agreement(path, junk):
    """It is refused, or means something: numbers that are finite, and the same again from its own text."""
    values = inside = json.loads(AGREED.to_json())
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = junk
    try:
        found = Agreement.from_json(json.dumps(values))
    except MessageError as error:
        assert str(error).startswith("the agreement of the sites cannot be read: ")
        return
    assert all(map(math.isfinite, numbers_in(vars(found))))
    assert Agreement.from_json(found.to_json()) == found


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[" * 10**6, '{"study": 1}', AGREED.to_json()[:-1]])
def test_what_is_no_agreement_is_refused(text):
    with pytest.raises(MessageError, match=r"^the agreement of the sites cannot be read"):
        Agreement.from_json(text)


def test_an_agreement_survives_its_text():
    assert Agreement.from_json(AGREED.to_json()) == AGREED


def test_small_groups_are_neither_named_nor_counted():
    frame = made_up()["north"].copy()
    frame.loc[:2, "arm"] = "secret"
    frame.loc[10:12, "age"] = np.nan
    told = describe(SiteTable(STUDY, read_frame(frame)))
    assert b"secret" not in json_bytes(told.schema).tobytes()
    place = 4 + 3 * STUDY.needed.index("age")
    assert told.counts[place] == HIDDEN  # three missing ages
    assert told.counts[0] == told.counts[1] == 117  # their number cannot be had by subtraction either
