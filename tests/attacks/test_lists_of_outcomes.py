"""Studies that call any list of values an event: two lists that differ by one person's value tell that person's record."""

from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.attacker import DEFAULTS, GUARD_OFF, Refused, recovered
from tests.attacks.study_site import ROWS, StudySite, binomial

from fedns.core.messages.encoding import WIRE_PRECISIONS, Envelope, decode, encode
from fedns.federation.protocol.packets import ASK
from fedns.studies.design.site_table import HIDDEN
from fedns.studies.handshake.description import TableDescription, TableQuestion
from fedns.studies.study import Study

SENTENCE = r"^R2: a group of its rows is too small for sums over it, by outcome, level or study; its log has which$"


def by_lists(site, people=range(1, 13)):
    """The records of some people: lists of six people with the person and without; both sides have many rows in each."""
    found = []
    for person in people:
        with_six = [number for number in range(1, ROWS + 1) if number != person][:6]
        found.append(binomial(site, "number", with_six)[:3] - binomial(site, "number", [*with_six, person])[:3])
    return recovered(np.array(found), site.people[: len(found)])


def by_one_event(site, people=range(1, 13)):
    """The records of some people: each the only event of a Cox study, whose gradient is all others' mean without it."""
    mean, found = site.people.mean(axis=0), []
    for person in people:
        rest = [str(number) for number in range(1, ROWS + 1) if number != person]
        outcome = {"status": "number", "event": [str(person)], "non_event": rest}
        found.append(mean - site.gradient_at_zero(site.study("days", family="cox", outcome=outcome), 3))
    return recovered(np.array(found), site.people[: len(found)])


@pytest.mark.parametrize("attack", [by_lists, by_one_event])
def test_without_a_guard_everybody_is_told_by_who_is_called_an_event(attack, tmp_path):
    assert attack(StudySite(tmp_path / "a", GUARD_OFF)) == 1.0


@pytest.mark.parametrize("attack", [by_lists, by_one_event])
def test_by_default_no_such_study_is_opened(attack, tmp_path, passes):
    with pytest.raises(Refused, match=SENTENCE):
        attack(StudySite(tmp_path / "a", DEFAULTS))
    assert passes == []


@pytest.mark.parametrize(("column", "smallest", "permitted"), [("ward", 10, True), ("ward", 11, False), ("bed", 4, True),
                                                               ("bed", 5, False)])  # fmt: skip
@pytest.mark.parametrize("family", ["binomial", "cox"])
def test_each_label_has_no_row_or_as_many_as_the_owner_says(family, column, smallest, permitted, tmp_path):
    site = StudySite(tmp_path / "a", replace(DEFAULTS, smallest_level=smallest))
    values = [str(value) for value in sorted(set(site.table[column]))]
    sides = {"event": [*values[:6][:3], "nobody"], "non_event": [*values[:6][3:], *values[6:]]}
    if family == "cox":
        text = site.study("days", family="cox", outcome={"status": column, **sides})
    else:
        text = site.study(column, family="binomial", outcome=sides)
    if permitted:
        assert np.isfinite(site.gradient_at_zero(text, 3 if family == "cox" else 4)).all()
    else:
        with pytest.raises(Refused, match=SENTENCE):
            site.gradient_at_zero(text, 3 if family == "cox" else 4)


def described(site, column, event):
    """How many rows are events, and how many are none, as the handshake has it."""
    others = [str(value) for value in sorted(set(site.table[column])) if str(value) not in event]
    text = site.study(column, family="binomial", outcome={"event": event, "non_event": others})
    site.open(text)
    digest = np.frombuffer(Study.from_json(text).digest.encode(), dtype=np.uint8)
    asked = encode(TableQuestion(digest), Envelope(0, handler="describe_table"), WIRE_PRECISIONS["float64"])
    return decode(TableDescription, site.send(ASK, asked, 2))[0].counts[2:4].tolist()


def test_a_handshake_counts_no_list_with_a_label_that_few_have(tmp_path):
    """Of six people and of seven, one more or none more would be counted: whether somebody is here at all."""
    site = StudySite(tmp_path / "a", DEFAULTS)
    assert described(site, "number", [str(number) for number in range(1, 7)]) == [HIDDEN, HIDDEN]
    assert described(site, "ward", ["0", "1"]) == [20, 40]


def test_refusals_about_small_groups_do_not_say_which_it_was(tmp_path, caplog):
    """By a label, by a level, and by rows that tell two studies apart: the words are the same, the log has more."""
    site, sentences = StudySite(tmp_path / "a", replace(DEFAULTS, rare_levels="refuse")), set()
    wards = {"event": ["0", "1", "2"], "non_event": ["3", "4", "5"]}
    plain = site.study("ward", family="binomial", outcome=wards)
    site.gradient_at_zero(plain, 4)
    few = float(site.table["age"][0])
    left_out = site.study("ward", family="binomial", outcome=wards, columns={"age": {"missing_codes": [few]}},
                          missing="complete")  # fmt: skip
    small = site.study("bed", family="binomial", outcome={"event": ["0", "1"], "non_event": [str(b) for b in range(2, 15)]})
    for text in (left_out, small):
        with pytest.raises(Refused) as refusal:
            site.gradient_at_zero(text, 4)
        sentences.add(str(refusal.value))
    assert len(sentences) == 1
    assert "differ from an earlier study's by fewer than 5" in caplog.text
    assert "one of the outcomes that the study names" in caplog.text
