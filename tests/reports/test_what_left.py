"""Every message that can leave a site has plain words, and the pages hold every message and every byte."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from tests.studies.conftest import made_up
from tests.studies.situations import STUDY, save
from tests.studies.test_federated import Federation

from fedns.core.clients import messages_of
from fedns.core.errors import DataError
from fedns.core.messages import Discloses, Message
from fedns.core.messages.ledger import LedgerEntry
from fedns.reports.what_left import WORDS, all_handlers, sent_kinds, site_page, stayed, what_left_text, write_what_left
from fedns.studies.fit import fit_study
from fedns.studies.site_lines import SiteLines, read_lines


def left(kind, purpose, shapes, size):
    """One message that left a site."""
    return LedgerEntry(1, 1, "uplink", kind, shapes, 1, size, purpose)


def test_everything_that_can_be_disclosed_has_words():
    assert set(WORDS) == set(Discloses)
    assert all(words.noun.endswith("s") and words.what and words.learned for words in WORDS.values())


@pytest.mark.parametrize("handler", all_handlers(), ids=lambda handler: handler.__qualname__)
def test_every_message_says_what_it_is(handler):
    reply = messages_of(handler)[1]
    assert reply.__doc__ and reply.__doc__ != Message.__doc__ and not reply.__doc__.startswith(f"{reply.kind}(")
    told = sent_kinds([left(reply.kind, handler.__name__, dict.fromkeys(reply.specs(), (3,)), 24)])[0]
    assert len(told.fields) == len(reply.specs()) and "not installed" not in told.sentence


def test_a_gradient_in_plain_words():
    line = left("Information", "information", {"gradient": (14,), "hessian_triangle": (105,)}, 1000)
    (told,) = sent_kinds([line, line])
    assert told.fields[0][0].startswith("14 sums: for each column, the residuals weighted by that column")
    assert (told.times, told.bytes) == (2, 2000)


def test_a_number_of_columns_is_no_character():
    shapes = {"num_rows": (), "total_weight": (), "num_columns": ()}
    (told,) = sent_kinds([left("Registration", "register", shapes, 40)])
    assert any(what.startswith("1 number: ") and what.endswith("(num_columns)") for what, _ in told.fields)
    assert not any("character" in what for what, _ in told.fields)


def test_sampled_rows_are_not_said_to_have_stayed():
    assert stayed([left("Information", "information", {}, 1)])[0].startswith("The table itself")


def test_the_pages_of_a_fit_hold_every_byte(tmp_path):
    fit = fit_study(STUDY, made_up())
    lines = fit.site_lines.sites
    assert sum(line.bytes for site in lines.values() for line in site) == fit.uplink_bytes
    write_what_left(fit.site_lines, tmp_path, "a study")
    for site, own in lines.items():
        text = (tmp_path / "what-left" / f"{site}.html").read_text(encoding="utf-8")
        assert text == site_page(site, own, "a study")
        assert all(f"<h2>{kind}</h2>" in text for kind in {line.kind for line in own})
        assert re.search(rf"{len(own)} messages", text) and f"what left {site}" in what_left_text(site, own)
    assert 'href="what-left/north.html"' in (tmp_path / "what-left.html").read_text(encoding="utf-8")


def test_ledgers_of_coordinator_and_sites_have_the_meters_bytes_with_inference_included(tmp_path):
    federation = Federation(save(made_up(), tmp_path), tmp_path)
    fit = federation.fit(STUDY)
    metered = sum(entry.bytes for entry in fit.ledger if entry.direction == "uplink")
    watching = {"LocalEvaluation"}  # asked for after every round, and metered apart
    told = {site: [line for line in lines if line.kind not in watching] for site, lines in fit.site_lines.sites.items()}
    assert sum(line.bytes for lines in told.values() for line in lines) == metered == fit.uplink_bytes
    assert {"Information", "Fit", "NullFit"} <= {line.kind for lines in told.values() for line in lines}
    for site, state in federation.states.items():
        own = read_lines(state / "ledger.jsonl", site).sites[site]
        assert [(line.kind, line.bytes, line.shapes) for line in own] == [
            (line.kind, line.bytes, line.shapes) for line in fit.site_lines.sites[site]
        ]
    here = fit_study(STUDY, save(made_up(), tmp_path))
    assert unnumbered(told) == unnumbered(here.site_lines.sites)  # what opens a run and what watches it are exchanges, too


def unnumbered(lines):
    return {site: [replace(line, exchange=0) for line in own] for site, own in lines.items()}


def test_a_broken_ledger_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with pytest.raises(DataError, match="does not exist"):
        read_lines(path)
    path.write_text(json.dumps({"direction": "uplink"}) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 1 is no line of a ledger"):
        read_lines(path)


def test_names_of_sites_make_files_that_do_not_collide(tmp_path):
    line = left("Registration", "register", {}, 1)
    write_what_left(SiteLines({"a/b": [line], "a b": [line], "../x": [line]}), tmp_path, "a study")
    assert len(list((tmp_path / "what-left").iterdir())) == 3
