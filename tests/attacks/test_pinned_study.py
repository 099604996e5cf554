"""A study that an owner has agreed to, with a method that nobody has: it chooses at which coefficients a site is asked."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.attacker import DEFAULTS, Refused
from tests.attacks.study_site import COLUMNS, StudySite

from fedns.core.messages.encoding import WIRE_PRECISIONS, Envelope, decode, encode
from fedns.federation.protocol.packets import ASK
from fedns.methods.fedavg import Candidates, LocalModels
from fedns.studies.checking import check_table
from fedns.studies.design.agreement import Agreement
from fedns.studies.study import Study
from fedns.studies.tables.files.frames import read_frame

METHOD = "fedavg:local_steps=1;learning_rate=1"


def site_and_study(folder, digests=()):
    site = StudySite(folder, replace(DEFAULTS, digests=tuple(digests)))
    text = Study.from_json(site.study("dose", family="gaussian").replace("age + dose", "age")).to_json()
    agreed = Agreement(Study.from_json(text).digest, centres=dict.fromkeys(COLUMNS, (0.0, 1.0))).to_json()
    return site, text, agreed


def digests_of(folder, method=METHOD):
    _, text, agreed = site_and_study(folder)
    study, agreement = (hashlib.sha256(part.encode()).hexdigest() for part in (text, agreed))
    return study, f"{study}+{method}", f"{study}+{method}+{agreement}"


def step_from_anywhere(folder, digests):
    """A step of a method and from a point of the coordinator's own: answered?"""
    site, text, agreed = site_and_study(folder, digests)
    site.open(text, agreed, METHOD)
    asked = encode(
        Candidates(np.full((1, 3), 0.1), np.ones(1)), Envelope(1, handler="local_models"), WIRE_PRECISIONS["float64"]
    )
    return decode(LocalModels, site.send(ASK, asked, 2))[0].coefficients


def test_without_digests_the_coordinator_chooses_the_method(tmp_path):
    assert np.isfinite(step_from_anywhere(tmp_path / "a", ())).all()


def test_the_digest_of_a_study_agrees_to_no_method(tmp_path):
    """And whoever wrote it reads what to write instead."""
    study, with_method, _ = digests_of(tmp_path / "a")
    with pytest.raises(Refused) as refusal:
        step_from_anywhere(tmp_path / "b", [study])
    assert str(refusal.value) == (
        f'R1: its owner has agreed to this study and to no method: to agree to this one, write digests = ["{with_method}"]'
    )
    assert np.isfinite(step_from_anywhere(tmp_path / "c", [with_method])).all()


@pytest.mark.parametrize("method", ["fednewton", "fedavg:local_steps=2;learning_rate=1", "fedavg:learning_rate=1"])
def test_another_method_or_another_setting_is_refused(method, tmp_path):
    _, another, _ = digests_of(tmp_path / "a", method)
    with pytest.raises(Refused, match=r"^R1: its owner has agreed to certain runs only, and this is none of them$"):
        step_from_anywhere(tmp_path / "b", [another])


def test_what_was_agreed_may_be_pinned_too(tmp_path):
    *_, all_of_it = digests_of(tmp_path / "a")
    assert np.isfinite(step_from_anywhere(tmp_path / "b", [all_of_it])).all()
    other = f"{all_of_it[:-1]}{'0' if all_of_it[-1] != '0' else '1'}"
    with pytest.raises(Refused, match="certain runs only"):
        step_from_anywhere(tmp_path / "c", [other])


@pytest.mark.parametrize("pin", [0, 1, 2])
def test_hands_are_shaken_about_a_study_that_is_pinned_and_about_no_other(pin, tmp_path):
    """It has no method yet, and what was agreed comes of it."""
    digests = digests_of(tmp_path / "a")
    site, text, _ = site_and_study(tmp_path / "b", [digests[pin]])
    site.open(text)
    with pytest.raises(Refused, match="R1"):
        site.open(text.replace("~ age", "~ age:age"))


def test_a_check_of_the_table_prints_the_line_that_agrees(tmp_path):
    """For a method that the study names, and for the one that is taken by default, which the last word on is the log's."""
    site, text, _ = site_and_study(tmp_path / "a")
    frame = read_frame(site.folder / "rows.csv")
    heading = "to agree to this study with this method, and to no other, in [permit] of site.toml"
    by_default = check_table(Study.from_json(text), frame).sections[heading]
    assert by_default[0] == f'digests = ["{Study.from_json(text).digest}+fednewton"]' and "the site's log" in by_default[1]
    named = replace(Study.from_json(text), method=METHOD)
    assert check_table(named, frame).sections[heading] == [f'digests = ["{named.digest}+{METHOD}"]']
