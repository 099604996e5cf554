"""Both sides of every limit of the handshake: what a site tells of its table, and from where on it stops a fit."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from fedns.core.errors import ConfigError, MessageError
from fedns.federation.permissions import Permissions
from fedns.studies.checking import check_table
from fedns.studies.design.site_table import HIDDEN, SiteTable, numeric_expressions
from fedns.studies.fit import fit_study
from fedns.studies.handshake.conflicts import StudyConflict, conflicts, remarks
from fedns.studies.handshake.description import Description, describe, json_bytes
from fedns.studies.handshake.handshake import first_agreement
from fedns.studies.handshake.spread import FACTORS
from fedns.studies.handshake.table_summary import LONGEST_SCHEMA, read_json, summary_of
from fedns.studies.study import Study
from fedns.studies.tables.column_rule import ColumnRule
from fedns.studies.tables.feature_map import MapRule
from fedns.studies.tables.files.frames import read_frame
from fedns.studies.tables.recognition import SENTENCES

ROWS = 60
LIMITS = (5, 7)  # the smallest group that may be told: by default, and as an owner may set it


def study(formula="ill ~ age", missing="complete", **columns):
    rules = {name: ColumnRule(**rule) for name, rule in columns.items()}
    return Study(formula, "binomial", event=("yes",), non_event=("no",), missing=missing, columns=rules)


def frame(**columns):
    random = np.random.default_rng(0)
    plain = {"age": random.normal(50, 8, ROWS).round(1), "ill": ["yes", "no"] * (ROWS // 2)}
    return pd.DataFrame(plain | columns)


def told(asked, table, site="here", **limits):
    """What the coordinator knows of a table, by way of the wire."""
    description = describe(SiteTable(asked, read_frame(table), **limits))
    return summary_of(
        asked, site, Description(read_json(json_bytes(description.schema)), description.counts, description.moments)
    )


def reasons(asked, *tables, **limits):
    return conflicts(asked, [told(asked, table, f"s{place}", **limits) for place, table in enumerate(tables, 1)])


def first(count, value, others):
    """A column whose first rows have one value."""
    return [value] * count + [others] * (ROWS - count)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_group_is_told_from_the_owners_limit_on(limit):
    for count, seen in ((limit - 1, False), (limit, True)):
        level = told(study("ill ~ arm"), frame(arm=first(count, "rare", "usual")), smallest_count=limit).columns["arm"]
        assert (level.levels, level.rare) == ((("rare", "usual"), False) if seen else (("usual",), True))
        table = frame()
        table.loc[: count - 1, "age"] = np.nan
        gaps = told(study(), table, smallest_count=limit)
        # Where the gaps are too few to be told, neither is the number of rows that would give them by subtraction.
        assert gaps.columns["age"].missing == (count if seen else HIDDEN)
        assert (gaps.rows, gaps.used) == (ROWS if seen else ROWS - count, ROWS - count)
        outside = told(study(age={"range": (0, 100)}), frame(age=first(count, 101.0, 50.0)), smallest_count=limit)
        assert outside.columns["age"].outside == (count if seen else HIDDEN)
        undefined = told(study("ill ~ log(age)"), frame(age=first(count, -1.0, 50.0)), smallest_count=limit)
        assert undefined.columns["age"].undefined == (count if seen else HIDDEN)
        pair = told(study(), frame(age=first(count, 1.0, 2.0)), smallest_count=limit).columns["age"].pair
        assert pair == ((1.0, 2.0) if seen else ())
        few = frame().head(count)
        summary = told(study(), few, smallest_count=limit)
        (moments,) = summary.moments.values()
        assert (moments.count, summary.rows, summary.used) == ((count, count, count) if seen else (0, count, HIDDEN))
        if seen:
            assert (moments.mean, moments.deviation) == pytest.approx((few["age"].mean(), few["age"].std(ddof=0)))


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("rare", ["yes", "no"])
def test_neither_count_of_an_outcome_tells_the_other(limit, rare):
    other = {"yes": "no", "no": "yes"}[rare]
    for count, seen in ((0, True), (limit - 1, False), (limit, True)):
        summary = told(study(), frame(ill=first(count, rare, other)), smallest_count=limit)
        counts = {"yes": summary.events, "no": summary.non_events}
        assert counts == ({rare: count, other: ROWS - count} if seen else {"yes": HIDDEN, "no": HIDDEN})


def test_without_an_outcome_there_are_no_events_to_tell():
    summary = told(study(), frame().drop(columns="ill"))
    assert (summary.events, summary.non_events) == (HIDDEN, HIDDEN)


def test_an_outcome_that_is_labelled_otherwise_is_told_beside_a_site_that_fits():
    strange, fitting = frame(ill=["ja", "nein"] * 30), frame()
    (sentence,) = (text for text in reasons(study(), strange, fitting) if "takes" in text)
    assert "the outcome 'ill' at site 's1' holds 'ja', 'nein'; the study takes 'yes' for the event and 'no'" in sentence
    assert "for its absence, as site 's2' does" in sentence
    (sentence,) = (text for text in reasons(study(), frame(ill=["YES", "no"] * 30)) if "takes" in text)
    assert sentence.endswith("'no' for its absence: 'YES' is likely the same as 'yes'")
    table = frame(ill=first(4, "perhaps", "no"))  # too rare to be named, so it is no example to others either
    found = reasons(study(), strange, table)
    assert any("site 's2' has values, too rare to be named" in text for text in found)
    assert not any("as site 's2' does" in text for text in found)
    assert any("no site has an event ('yes') often enough to be told: is 'ill' coded otherwise?" in text for text in found)


def test_classes_are_those_of_the_study_where_it_lists_them():
    one = frame(ill=["yes"] * ROWS)
    rules = {"ill": ColumnRule(levels=("yes", "no", "perhaps"))}
    assert not any("fewer than two" in text for text in reasons(Study("ill ~ age", "multinomial", columns=rules), one))
    assert any("'ill' has fewer than two classes" in text for text in reasons(Study("ill ~ age", "multinomial"), one))
    assert not any("fewer than two" in text for text in reasons(Study("ill ~ age", "multinomial"), frame()))


def test_tables_that_do_not_fit_are_not_fitted():
    tables = {"north": frame(), "south": frame().drop(columns="age")}
    with pytest.raises(
        StudyConflict, match=r"^the study cannot be fitted: site 'south' does not have the column 'age'"
    ) as one:
        fit_study(study(), tables)
    assert len(one.value.reasons) == 1
    tables["north"] = tables["south"]
    with pytest.raises(StudyConflict, match=r"^the study cannot be fitted \(and 1 more\): site 'north'.*; site 'south'"):
        fit_study(study(), tables)


def test_rare_levels_that_the_study_lists_are_no_surprise():
    table = frame(arm=first(4, "b", "a"))
    assert told(study("ill ~ arm"), table).columns["arm"].rare
    assert not told(study("ill ~ arm", arm={"levels": ("a", "b")}), table).columns["arm"].rare
    assert not told(study(), frame(ill=first(4, "yes", "no"))).columns["ill"].rare
    assert told(study(), frame(ill=first(4, "perhaps", "no"))).columns["ill"].rare


def test_rows_of_rare_levels_are_hidden_where_the_owner_wants_it():
    asked = study("ill ~ arm + age")
    for count, hidden in ((4, True), (5, False)):
        table = frame(arm=first(count, "b", "a"))
        assert told(asked, table, hides_rare=True).columns["arm"].hidden is hidden
        assert not told(asked, table).columns["arm"].hidden
        assert not told(asked, frame(arm="a", ill=first(count, "yes", "no")), hides_rare=True).columns["ill"].hidden
    table = frame(arm=first(4, "b", "a"))
    table.loc[:3, "age"] = np.nan  # those rows are not used
    assert not told(asked, table, hides_rare=True).columns["arm"].hidden
    (sentence,) = reasons(asked, frame(arm=first(4, "b", "a")), hides_rare=True)
    assert "site 's1' hides levels of 'arm'" in sentence and 'rare_levels = "show"' in sentence


def test_codes_for_missing_values_are_taken_out():
    asked = study(age={"missing_codes": (-9, -8)})
    table = frame(age=[-9.0] * 6 + [-8.0] * 5 + [-7.0] * 6 + [50.0, 51.0, 52.0] * 14 + [50.0])
    summary = told(asked, table)
    assert summary.columns["age"].missing == 11 and summary.used == ROWS - 11 and summary.columns["age"].kind == "number"
    assert told(asked, frame(age=-9.0)).columns["age"].kind == "empty"


def test_what_a_column_is_taken_for():
    table = frame(arm=["a", "b"] * 30, code=[0, 1, 2] * 20)
    assert told(study("ill ~ arm"), table).columns["arm"].category
    assert not told(study("ill ~ code"), table).columns["code"].category
    assert told(study("ill ~ C(code)"), table).columns["code"].category
    assert told(study("ill ~ code", code={"kind": "category"}), table).columns["code"].category
    assert told(study("ill ~ code", code={"levels": ("0", "1", "2")}), table).columns["code"].category
    assert not told(study("ill ~ arm", arm={"kind": "number"}), table).columns["arm"].category
    assert told(study(), table).columns["ill"].category
    counts = told(Study("code ~ age", "poisson"), table).columns["code"]
    assert not counts.category and counts.whole
    for values, whole in (([0.0, 2.0], True), ([-1.0, 2.0], False), ([0.5, 2.0], False)):
        assert told(study(), frame(age=values * 30)).columns["age"].whole is whole


def test_names_that_are_like_a_missing_one_and_columns_that_are_not_needed():
    summary = told(study("ill ~ weight"), frame(Weigth=1.0, height=1.0))
    assert summary.absent == {"weight": ("Weigth", "height")} or summary.absent == {"weight": ("Weigth",)}
    assert summary.ignored == 3  # age, Weigth and height
    (sentence,) = reasons(study("ill ~ weight"), frame(Weigth=1.0))
    assert "does not have the column 'weight'" in sentence and "'Weigth', which is likely the same" in sentence
    (sentence,) = reasons(study("ill ~ weight"), frame())
    assert sentence.endswith("'weight': add it, or take it out of the formula")
    (sentence,) = reasons(study(), frame().drop(columns="ill"))
    assert "does not have the outcome 'ill'" in sentence


def looked(asked, column, **more):
    return told(asked, pd.DataFrame({"x": column, "ill": (["yes", "no"] * len(column))[: len(column)], **more})).columns["x"]


def test_what_is_no_measurement():
    numbers, texts = study("ill ~ x"), study("ill ~ x", x={"kind": "category"})
    for count, index in ((19, ""), (20, "index")):
        assert looked(numbers, np.arange(3.0, 3.0 + count)).looks_like == index
        assert looked(texts, [f"p{n}" for n in range(count)]).looks_like == index.replace("index", "id")
    assert looked(numbers, [*np.arange(20.0), 21.0]).looks_like == ""  # a gap
    assert looked(numbers, np.arange(20) + 0.5).looks_like == ""
    assert looked(texts, [f"p{n}" for n in range(20)] + ["p0"]).looks_like == ""
    for levels, text in ((100, ""), (101, "text")):
        assert looked(texts, [f"p{n}" for n in range(levels)] * 2).looks_like == text
    assert looked(numbers, pd.to_datetime(["2020-01-01", "2021-01-01"] * 10)).looks_like == "date"
    assert looked(numbers, [None] * 20).looks_like == "empty"
    for column, kind in ((np.arange(30.0), "index"), ([f"p{n}" for n in range(30)], "id"), ([None] * 30, "empty")):
        found = conflicts(
            numbers, [told(numbers, frame(x=list(column) * 2 if kind == "empty" else [*column, *column][:60]))]
        )
        if kind == "empty":
            assert any(SENTENCES[kind] in sentence and "'x' at site 'here'" in sentence for sentence in found)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ([*[10.0, 20.0] * 20, 99.0, 99.0], 99.0),  # 79 outside a spread of 10, twice
        ([*[10.0, 20.0] * 20, 99.0], 99.0),  # more than five spreads outside, once
        ([*[10.0, 26.0] * 20, 99.0], None),  # 73 is less than five spreads of 16
        ([*[10.0, 60.0] * 20, 99.0, 99.0], None),  # 39 is within a spread of 50
        ([*[49.0, 74.0] * 20, 99.0, 99.0], None),  # exactly a spread
        ([*[50.0, 74.0] * 20, 99.0, 99.0], 99.0),  # a little more than a spread
        ([*[1.0, 2.0] * 20, -9.0, -9.0], -9.0),
        ([*[1.0, 2.0] * 20, -8.0, -8.0], None),  # no code that anybody uses
        ([10.0, 20.0, 99.0, 99.0], None),  # two other values are too few to say
        ([10.0, 20.0, 15.0, 99.0, 99.0], 99.0),
        ([*np.arange(100.5, 112.5), 0.0, 0.0], 0.0),  # zeros well below
        ([*np.arange(100.5, 112.5), 0.0], None),  # one only
        ([*np.arange(100.5, 109.5), 0.0, 0.0], None),  # nine different values
        ([*np.arange(100.5, 110.5), 0.0, 0.0], 0.0),  # ten
        ([*np.arange(3.5, 14.5), 0.0, 0.0], None),  # 3.5 is less than 1.25 deviations of 3.16
        ([*np.arange(4.5, 15.5), 0.0, 0.0], 0.0),
    ],
)
def test_codes_that_stand_far_outside(values, code):
    found = looked(study("ill ~ x"), values)
    assert found.sentinel == code
    assert looked(study("ill ~ x", x={"range": (-1000, 1000)}), values).sentinel is None
    if code is not None:
        sentences = conflicts(
            study("ill ~ x"),
            [told(study("ill ~ x"), pd.DataFrame({"x": values, "ill": ["yes", "no", *["yes", "no"] * 30][: len(values)]}))],
        )
        assert any(f"holds {code:g}, far outside" in s and f"missing_codes = [{code:g}]" in s for s in sentences)


def around(mean, deviation, rows=ROWS):
    """Values of exactly this mean and standard deviation, of three kinds, so that they are no pair."""
    shape = np.tile([-np.sqrt(1.5), 0.0, np.sqrt(1.5)], rows // 3)
    return mean + deviation * shape


def apart(one, other, asked=None, **columns):
    asked = asked or study("ill ~ age")
    return reasons(asked, *(frame(age=around(*moments)) for moments in (one, other)))


def test_means_apart_by_four_joint_deviations_stop_a_fit():
    joint = np.hypot(3.0, 2.0) / np.sqrt(2)
    assert apart((50.0, 3.0), (50.0 + 3.99 * joint, 2.0)) == []
    (sentence,) = apart((50.0, 3.0), (50.0 + 4.01 * joint, 2.0))
    assert f"mean {50.0 + 4.01 * joint:.4g} and standard deviation 2 at site 's2', and 50 and 3 at site 's1'" in sentence
    assert "no usual pair of units explains it" in sentence and 'differs_at = ["s2"]' in sentence


def test_spreads_that_differ_six_times_stop_a_fit_wherever_the_means_are():
    assert apart((50.0, 3.0), (50.0, 17.9)) == []
    assert "50.5 and standard deviation 18.1 at site 's2', and 50 and 3 at site 's1'" in apart((50.0, 3.0), (50.5, 18.1))[0]
    assert "50.5 and standard deviation 3 at site 's2', and 50 and 18.1 at site 's1'" in apart((50.0, 18.1), (50.5, 3.0))[0]


@pytest.mark.parametrize(("factor", "words"), FACTORS)
@pytest.mark.parametrize("larger", [1, 2])
def test_every_usual_factor_is_named(factor, words, larger):
    """Spreads are wide, so that the means alone would not stop the fit; the factor brings the limit down."""
    small, large = (3.0, 1.0), (3.0 * factor, 1.0 * factor)
    found = apart(*((large, small) if larger == 1 else (small, large)))
    assert len(found) == 1 and f"the ratio is near {words};" in found[0]


def test_a_factor_has_to_explain_mean_and_spread():
    for ratio, named in ((1.11, True), (1.13, False), (0.89, True), (0.87, False)):
        assert ("near a thousand" in apart((300.0, 20.0), (300e3 * ratio, 20e3))[0]) is named
    for spread, named in ((0.49, True), (0.51, False), (-0.49, True), (-0.51, False)):
        assert ("near a thousand" in apart((300.0, 20.0), (300e3, 20e3 * np.exp(spread)))[0]) is named
    assert "no usual pair" in apart((-300.0, 20.0), (3000.0, 200.0))[0]  # the signs differ


def test_a_factor_brings_the_limit_to_one_and_a_half_deviations():
    # 2.54 times: the means lie 1.54 m apart, the joint deviation is sqrt((1 + 2.54^2) / 2) d = 1.93 d
    for ratio, stopped in ((1.48, False), (1.52, True)):
        deviation = 1.54 * 10 / (1.9301 * ratio)
        assert bool(apart((10.0, deviation), (25.4, 2.54 * deviation))) is stopped


def test_what_is_meant_is_not_asked_about():
    far = ((50.0, 3.0), (500.0, 3.0))
    assert apart(*far) and not apart(*far, asked=study("ill ~ age", age={"differs_at": ("s2",)}))
    asked = study("ill ~ age", age={"unit": "years"})
    assert "and 50 and 3 years at site 's1'" in apart(*far, asked=asked)[0]


def test_a_column_that_is_one_value_at_a_site():
    (sentence,) = apart((50.0, 3.0), (0.0, 0.0))
    assert "has the value 0 in every row at site 's2', and mean 50 and standard deviation 3 at site 's1'" in sentence
    assert 'differs_at = ["s2"]' in sentence


def test_the_site_in_the_middle_is_compared_with():
    tables = [frame(age=around(mean, 3.0)) for mean in (51.0, 500.0, 50.0, 49.0)]
    (sentence,) = reasons(study(), *tables)
    assert "at site 's2', and 50 and 3 at site 's3'" in sentence


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ((0, 1), (1, 2), "0 and 1 at site 's1' and 1 and 2 at site 's2'"),
        ((1, 2), (0.5, 9), "1 and 2 at site 's1' and 0.5 and 9 at site 's2'"),
    ],
)
def test_pairs_that_are_coded_in_two_ways(one, other, said):
    (sentence,) = reasons(study(), frame(age=list(one) * 30), frame(age=list(other) * 30))
    assert sentence == f"column 'age' is coded {said}: code it alike"
    assert reasons(study(), frame(age=list(one) * 30), frame(age=list(one) * 30)) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("placebo", "plasebo", True),
        ("placebo", "Placebo", True),
        ("low dose", "low-dose", True),
        ("stage 1", "stage 2", False),  # digits tell apart
        ("abc", "abd", False),  # too short for a slip
        ("abcdefgh", "abcdefgx", True),  # seven of eight letters are 0.875
        ("abcdef", "abcdex", False),  # five of six are 0.833
    ],
)
def test_levels_that_are_likely_the_same(one, other, same):
    tables = [frame(arm=["base", name] * 30) for name in (one, other)]
    found = reasons(study("ill ~ arm"), *tables)
    assert bool(found) is same
    if same:
        first_level, second = sorted((one, other))
        places = {one: "s1", other: "s2"}
        assert f"'{first_level}' at site '{places[first_level]}' and '{second}' at site '{places[second]}'" in found[0]


def test_two_levels_of_the_same_site_are_alike_only_but_for_signs():
    assert reasons(study("ill ~ arm"), frame(arm=["placebo", "plasebo"] * 30)) == []
    assert len(reasons(study("ill ~ arm"), frame(arm=["placebo", "PLACEBO"] * 30))) == 1


@pytest.mark.parametrize(("count", "said"), [(4, "some values"), (5, "5 values"), (12, "12 values")])
def test_how_many_values_are_said_to_be_outside_missing_or_undefined(count, said):
    (sentence,) = reasons(study(age={"range": (0, 100), "unit": "years"}), frame(age=first(count, 101.0, 50.0)))
    assert sentence == f"column 'age' at site 's1' has {said} outside the study's range 0 to 100 years"
    assert reasons(study(age={"range": (0, 101)}), frame(age=first(count, 101.0, 50.0))) == []
    (sentence,) = reasons(study("ill ~ log(age)"), frame(age=first(count, -1.0, 50.0)))
    assert f"has {said} for which log(age) is not defined" in sentence
    table = frame()
    table.loc[: count - 1, "age"] = np.nan
    (sentence,) = reasons(study(missing="refuse"), table)
    assert f"site 's1' misses {said} of 'age'" in sentence
    (note,) = (note for note in remarks(study(), [told(study(), table)]) if "miss" in note)
    if count < 5:
        assert "a few rows, fewer than its owner lets be counted, miss a value of 'age' (few)" in note
        assert f"its {ROWS - count} rows are those without them" in note
    else:
        assert note == f"site 'here': {count} of {ROWS} rows miss a value of 'age' ({count}) and are left out"


def test_levels_centres_and_fills_that_sites_agree_on():
    asked = study("ill ~ age + arm + log(dose)", missing="mean", arm={"reference": "b"})
    tables = [
        frame(age=around(50, 3), arm=["b", "a", "10"] * 20, dose=2.0),
        frame(age=around(53, 5), arm=["9", "b"] * 30, dose=3.0),
    ]
    tables[1].loc[:9, "age"] = np.nan
    agreed = first_agreement(asked, [told(asked, table) for table in tables])
    assert agreed.levels["arm"] == ("b", "9", "10", "a")  # the reference, numbers by size, texts
    pooled = pd.concat(tables)["age"]
    assert agreed.centres["age"] == pytest.approx((pooled.mean(), pooled.std(ddof=0)))
    assert agreed.centres["log(dose)"] == pytest.approx((np.log([2.0, 3.0]).mean(), np.log([2.0, 3.0]).std()))
    assert agreed.fills == {"age": pytest.approx(pooled.mean())}
    tables[0].loc[:9, "arm"] = None
    agreed = first_agreement(asked, [told(asked, table) for table in tables])
    assert agreed.levels["arm"][-1] == "missing"
    same = [frame(age=7.0, arm="b", dose=1.0)] * 2
    assert first_agreement(asked, [told(asked, table) for table in same]).centres["age"] == (7.0, 7.0)
    few = [table.head(4) for table in tables]
    assert first_agreement(asked, [told(asked, table) for table in few]).centres["age"] == (0.0, 1.0)


def test_what_may_be_a_number():
    wide = Study("y ~ log(a) + poly(b, 2) + bs(c, df=4) + C(d) + e", "gaussian", columns={"c": ColumnRule(range=(0.0, 9.0))})
    assert {factor.text for factor in numeric_expressions(wide)} == {"log(a)", "b", "c", "e", "y"}
    assert {factor.text for factor in numeric_expressions(study("ill ~ age"))} == {"age"}


HONEST = describe(SiteTable(study(), read_frame(frame())))


def sent(**parts):
    return summary_of(study(), "here", Description({**HONEST.schema, **parts}, HONEST.counts, HONEST.moments))


@pytest.mark.parametrize(
    ("texts", "accepted"),
    [
        ([f"n{k}" for k in range(1000)], True),
        ([f"n{k}" for k in range(1001)], False),
        (["x" * 200], True),
        (["x" * 201], False),
        (["one", "one"], False),
        (["\x1b[2J"], False),
        ([7], False),
        ("text", False),
    ],
)
def test_texts_of_a_site_are_few_short_and_printable(texts, accepted):
    if accepted:
        assert sent(notes=texts).notes == tuple(texts)
    else:
        with pytest.raises(MessageError, match="site 'here' sent a description that cannot be read"):
            sent(notes=texts)


def test_columns_of_a_description_are_those_of_the_study():
    column = HONEST.schema["columns"]["age"]
    for parts in (
        {"absent": {"age": []}},  # there and absent
        {"columns": {"ill": HONEST.schema["columns"]["ill"]}},  # neither
        {"columns": {**HONEST.schema["columns"], "more": column}},
    ):
        with pytest.raises(MessageError, match="other columns than those of the study"):
            sent(**parts)
    for broken in ({"pair": [1, 2, 3]}, {"kind": "secret"}, {"looks_like": "a person"}, {"unit": "x" * 201}):
        with pytest.raises(MessageError, match="cannot be read"):
            sent(columns={**HONEST.schema["columns"], "age": {**column, **broken}})
    assert sent(columns={**HONEST.schema["columns"], "age": {**column, "pair": [1, 2]}}).columns["age"].pair == (1.0, 2.0)
    with pytest.raises(MessageError, match="sent 11 counts, 10 were expected"):
        summary_of(study(), "here", Description(HONEST.schema, np.append(HONEST.counts, 0), HONEST.moments))
    counts = HONEST.counts.copy()
    counts[0] = HIDDEN
    assert summary_of(study(), "here", Description(HONEST.schema, counts, HONEST.moments)).rows == HIDDEN
    counts[0] = HIDDEN - 1
    with pytest.raises(MessageError, match="negative count"):
        summary_of(study(), "here", Description(HONEST.schema, counts, HONEST.moments))
    for moments in (HONEST.moments[:, :2], -HONEST.moments, np.vstack([HONEST.moments] * 2)):
        with pytest.raises(MessageError, match="moments that cannot be true"):
            summary_of(study(), "here", Description(HONEST.schema, HONEST.counts, moments))


def test_a_description_has_a_greatest_length():
    whole = b'"' + b"x" * (LONGEST_SCHEMA - 2) + b'"'
    assert len(read_json(np.frombuffer(whole, dtype=np.uint8))) == LONGEST_SCHEMA - 2
    with pytest.raises(MessageError, match=f"a description of {LONGEST_SCHEMA + 1} bytes is too long"):
        read_json(np.frombuffer(whole + b" ", dtype=np.uint8))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"range": (1.0, 1.0)}, "range must be"),
        ({"range": (1.0, 2.0, 3.0)}, "range must be"),
        ({"levels": tuple(map(str, range(1001)))}, "at most 1000"),
        ({"levels": ("a", "a")}, "levels must differ"),
        ({"levels": ("a",), "kind": "number"}, "is called a number"),
        ({"levels": ("a", "b"), "reference": "c"}, "'c' is not among its levels"),
        ({"kind": "numbers"}, "kind"),
    ],
)
def test_rules_of_columns_that_cannot_be_meant(rule, said):
    with pytest.raises(ConfigError, match=said):
        study(age=rule)


def test_rules_of_columns_at_their_limits():
    for rule in ({"range": (1.0, 1.5)}, {"levels": tuple(map(str, range(1000)))}, {"levels": ("a", "b"), "reference": "b"}):
        assert study(age=rule).rule("age").as_dict() == {k: list(v) if isinstance(v, tuple) else v for k, v in rule.items()}


def test_units_of_headers_are_compared_with_the_study_and_with_each_other():
    mine, other = (frame().rename(columns={"age": f"age [{unit}]"}) for unit in ("years", "Months"))
    told_by_study = reasons(study(age={"unit": "Years"}), mine, other)
    assert told_by_study[0] == ("column 'age' is in Months at site 's2', and in Years according to the study: convert one")
    (sentence,) = reasons(study(), mine, other)
    assert sentence == "column 'age' is in Months at site 's2', and in years according to site 's1': convert one"
    assert reasons(study(), mine, frame(), mine) == []


def test_rules_of_columns_as_a_file_writes_them():
    rule = ColumnRule.from_dict("age", {"range": [0, 120], "missing_codes": -9, "unit": "years"})
    assert (rule.range, rule.missing_codes, rule.unit) == ((0.0, 120.0), (-9.0,), "years")
    assert {type(value) for value in (*rule.range, *rule.missing_codes)} == {float}
    with pytest.raises(ConfigError, match="range of column 'age'"):
        ColumnRule.from_dict("age", {"range": ["young", "old"]})
    with pytest.raises(ConfigError, match="column 'age': unit must be a text, got 5"):
        ColumnRule.from_dict("age", {"unit": 5})


def test_what_a_look_at_a_table_says_of_it():
    asked = study("ill ~ age + arm", age={"unit": "years"})
    table = frame(arm=["a", "b", "b"] * 20, age=[40.0, 50.0, 60.0] * 20, more=1)
    table.loc[:5, "age"] = np.nan
    check = check_table(asked, read_frame(table))
    assert check.reasons == [] and check.sections["rows"][-3:] == [
        "60 rows, 54 of them used", "'age' is missing in 6 rows: those rows are left out", "27 events, 27 non-events",
    ]  # fmt: skip
    assert check.sections["columns"] == [
        "'ill' category: no (30), yes (30)", "'age' number: 40 to 60 years, mean 50", "'arm' category: a (20), b (40)",
        "ignored: 'more'",
    ]  # fmt: skip
    leaving = check.sections["what would leave"]
    assert leaving[1] == "groups of fewer than 5 rows are neither named nor counted in it"
    assert leaving[2:4] == [
        "each round, at most 50: what fednewton sends, M(M+1)/2 + M numbers for M = 3 coefficients",
        "before and after: gradient and Hessian, for rank and separation (72 B each)",
    ]
    sketched = check_table(dataclasses.replace(asked, method="fedns:sketch_size=4"), read_frame(table))
    assert sketched.sections["what would leave"][2] == (
        "each round, at most 50: what fedns sends, k M + M numbers for M = 3 coefficients"
    )
    dates = check_table(study("ill ~ x + y"), read_frame(frame(x=pd.to_datetime(["2020-01-01", "2021-01-01"] * 30))))
    assert dates.sections["columns"][1:3] == ["'x' date", "'y' is not there"]
    assert len(dates.reasons) == 1 and "does not have the column 'y'" in dates.reasons[0]


def test_a_look_at_a_table_hides_what_its_site_would_hide():
    """Rows of rare levels are refused once the columns are made; of a map's features nobody could tell them any more."""
    table, permit = read_frame(frame(arm=first(2, "rare", "usual"))), Permissions(rare_levels="refuse")
    asked = study("ill ~ age + arm")
    mapped = dataclasses.replace(asked, feature_map=MapRule("fourier", 4, width=1.0), strength=0.1)
    hides = [
        any("hides levels of 'arm'" in reason for reason in check_table(one, table, permit).reasons)
        for one in (asked, mapped)
    ]
    assert hides == [False, True]


def test_numbers_here_and_text_there():
    numbers, texts = frame(arm=[1.0, 2.0, 3.0] * 20), frame(arm=["1", "two", "3"] * 20)
    for tables, sites in (((numbers, texts), ("s1", "s2")), ((texts, numbers), ("s2", "s1"))):
        found = reasons(study("ill ~ arm"), *tables)
        assert any(f"numbers at site '{sites[0]}' and text at site '{sites[1]}': write it alike" in text for text in found)
        found = reasons(study("ill ~ arm", arm={"kind": "number"}), *tables)
        assert any(f"must hold numbers, and holds text at site '{sites[1]}'" in text for text in found)
