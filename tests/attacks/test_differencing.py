"""Two studies whose rows differ by one: what one says and the other does not is that row's."""

import json

import numpy as np
import pandas as pd
import pytest
from tests.attacks.attacker import DEFAULTS, GUARD_OFF, Refused
from tests.federation.in_process import run_of

from fedns.cli.serving import site_service
from fedns.core.messages.encoding import WIRE_PRECISIONS, Envelope, decode, encode
from fedns.federation.config import DataSource, SiteConfig
from fedns.federation.protocol.packets import ANSWER, ASK, OPEN, Packet
from fedns.federation.site.budget import reset_budgets
from fedns.studies.design.agreement import Agreement
from fedns.studies.questions.asking import Point
from fedns.studies.questions.information import Information
from fedns.studies.study import Study

ROWS = 400


class Site:
    """A table of people; the attacker knows the exact age of one of them, and nobody else's is the same."""

    def __init__(self, folder, permissions, at=7):
        folder.mkdir()
        self.folder, self.runs = folder, 0
        random = np.random.default_rng(4)
        self.table = pd.DataFrame({name: random.normal(size=ROWS) for name in ("y", "age", "dose", "weight")})
        self.person = self.table.iloc[at]
        self.table.to_csv(folder / "rows.csv", index=False)
        config = SiteConfig("site-0", "flower", folder, DataSource("rows.csv"), permit=permissions)
        self.state, self._service = folder / config.state, site_service(config)

    def sums_at_zero(self, missing_codes):
        """The gradient of a study's squared loss times its rows, and how many these are."""
        text = json.dumps({
            "formula": "y ~ age + dose + weight", "family": "gaussian", "columns": {"age": {"missing_codes": missing_codes}},
        })  # fmt: skip
        columns = ("age", "dose", "weight")
        agreed = Agreement(Study.from_json(text).digest, centres=dict.fromkeys(columns, (0.0, 1.0))).to_json()
        self.runs += 1
        self._send(OPEN, run_of("gd", 1, loss="squared", study=text, agreement=agreed).agreed(), 1)
        point = encode(Point(np.zeros(4)), Envelope(1, handler="information"), WIRE_PRECISIONS["float64"])
        found = decode(Information, self._send(ASK, point, 2))[0]
        rows = ROWS - int(np.isin(self.table["age"], missing_codes).sum())
        return rows * np.asarray(found.gradient)

    def _send(self, kind, body, exchange):
        run = self.runs.to_bytes(16, "big")
        reply = Packet.decode(self._service.answer(Packet(kind, run, 0, exchange, 0, 1, body).encode()))
        if reply.kind != ANSWER:
            raise Refused(reply.body.decode())
        return reply.body


def difference(site):
    """How far what two studies tell together is from the person's record."""
    person = site.sums_at_zero([]) - site.sums_at_zero([float(site.person["age"])])  # -y (age, dose, weight, 1)
    outcome = -person[3]
    return np.abs([outcome - site.person["y"], *(-person[:3] / outcome - site.person[["age", "dose", "weight"]])]).max()


def test_without_a_guard_the_record_of_one_person_is_the_difference(tmp_path):
    assert difference(Site(tmp_path / "a", GUARD_OFF)) < 1e-8


def test_by_default_rows_that_differ_by_a_few_are_refused(tmp_path):
    with pytest.raises(Refused, match=r"^R2: a group of its rows is too small"):
        difference(Site(tmp_path / "a", DEFAULTS))


def test_in_whatever_order_and_after_a_restart(tmp_path):
    site = Site(tmp_path / "a", DEFAULTS)
    site.sums_at_zero([float(site.person["age"])])
    config = SiteConfig("site-0", "flower", site.folder, DataSource("rows.csv"))
    site._service = site_service(config)
    with pytest.raises(Refused, match="R2: a group"):
        site.sums_at_zero([])
    with pytest.raises(Refused, match="R2: a group"):  # nor those without another person
        site.sums_at_zero([float(site.table["age"][9])])


def test_the_same_rows_again_and_rows_that_differ_by_many_are_permitted(tmp_path):
    site = Site(tmp_path / "a", DEFAULTS)
    np.testing.assert_array_equal(site.sums_at_zero([]), site.sums_at_zero([]))
    site.sums_at_zero(site.table["age"][:5].tolist())
    with pytest.raises(Refused, match="R2: a group"):  # four of these five
        site.sums_at_zero(site.table["age"][:4].tolist())


def test_the_owner_begins_anew(tmp_path):
    site = Site(tmp_path / "a", DEFAULTS)
    site.sums_at_zero([])
    assert reset_budgets(site.state) == 1
    site.sums_at_zero([float(site.person["age"])])
