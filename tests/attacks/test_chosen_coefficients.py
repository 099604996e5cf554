"""Coefficients chosen so that one record of ten thousand has all the say."""

import json

import numpy as np
import pandas as pd
import pytest
from tests.attacks.attacker import DEFAULTS, GUARD_OFF, Attacker, Refused, error
from tests.federation.in_process import run_of

from fedns.cli.serving import site_service
from fedns.core.messages.encoding import WIRE_PRECISIONS, Envelope, decode, encode
from fedns.core.shards import Shards
from fedns.federation.config import DataSource, SiteConfig
from fedns.federation.protocol.packets import ANSWER, ASK, OPEN, Packet
from fedns.studies.design.agreement import Agreement
from fedns.studies.questions.asking import Point
from fedns.studies.questions.information import Information
from fedns.studies.study import Study

ROWS, COLUMNS, TARGETS = 10_000, 5, 25
RANDOM = np.random.default_rng(1)
X = RANDOM.normal(size=(ROWS, COLUMNS))
SHARDS = Shards.from_arrays(X, np.where(X @ RANDOM.normal(size=COLUMNS) + RANDOM.normal(size=ROWS) > 0, 1.0, -1.0), [ROWS])
AIMED_AT = np.linspace(-1.5, 1.5, TARGETS)


def boundary(sharpness, at):
    """Coefficients whose margin is sharpness * (x_0 - at): only records near that plane have any curvature."""
    return np.array([sharpness, *np.zeros(COLUMNS - 1), -sharpness * at])


def by_hessian(attacker, at):
    """Zoom in: the mean of x_0 under the curvature's weights, and a little beside it, is the next place to look."""
    for sharpness in 10.0 ** np.arange(2, 7.5, 0.5):
        _, hessian = attacker.curvature(boundary(sharpness, at))
        at = hessian[0, -1] / hessian[-1, -1] + 1.0 / sharpness
    return hessian[:-1, -1] / hessian[-1, -1]


def by_gradients(attacker, at):
    """Two gradients at boundaries a little apart differ by the records between them; halve until there is one."""

    def below(place):
        return ROWS * attacker.evaluate(boundary(1e13, place)).gradient

    low, high = at, at + 0.05
    first, last = below(low), below(high)
    while abs(last[-1] - first[-1]) > 1.5:
        middle = 0.5 * (low + high)
        between = below(middle)
        if abs(between[-1] - first[-1]) > 0.5:
            high, last = middle, between
        else:
            low, first = middle, between
    return (last - first)[:-1] / (last - first)[-1]


def isolate(folder, permissions, method, recover):
    attacker = Attacker(SHARDS, folder, permissions, method)
    found = []
    for at in AIMED_AT:
        attacker.begin()
        found.append(recover(attacker, at))
    nearest = [X[np.argmin(((X - row) ** 2).sum(axis=1))] for row in found]
    return float(np.abs(np.array(found) - nearest).max())


CASES = pytest.mark.parametrize(("method", "recover"), [("fednewton", by_hessian), ("gd", by_gradients)])


@CASES
def test_without_a_guard_every_record_that_is_aimed_at_is_found(method, recover, tmp_path):
    assert isolate(tmp_path, GUARD_OFF, method, recover) < 1e-9


@CASES
def test_by_default_the_site_refuses(method, recover, tmp_path):
    with pytest.raises(Refused, match=r"^R4: at these coefficients the answer would be about a few of its rows$"):
        isolate(tmp_path, DEFAULTS, method, recover)


def test_as_sharp_as_the_defaults_allow_it_is_no_better_than_guessing(tmp_path):
    """Half as sharp until the site answers: then the answer is about some ten records, and their mean is nobody's."""
    attacker = Attacker(SHARDS, tmp_path, DEFAULTS, "fednewton")
    found, meant = [], []
    for at in AIMED_AT[::5]:
        attacker.begin()
        for sharpness in 2.0 ** np.arange(14, 0, -1):
            try:
                _, hessian = attacker.curvature(boundary(sharpness, at))
                break
            except Refused:
                continue
        found.append(hessian[:-1, -1] / hessian[-1, -1])
        meant.append(X[np.argmin(np.abs(X[:, 0] - at))])
    # The first column was chosen by the attacker; the others are what it wanted to know.
    assert error(np.array(found)[:, 1:], np.array(meant)[:, 1:]) > 0.8


class GammaStudy:
    """A study of 400 rows whose family has another expected curvature than the observed one."""

    def __init__(self, folder, permissions):
        folder.mkdir()
        random = np.random.default_rng(9)
        self.rows = random.normal(size=(400, 3))
        columns = {f"x{number}": self.rows[:, number] for number in range(3)}
        pd.DataFrame({"y": random.gamma(2.0, size=400), **columns}).to_csv(folder / "rows.csv", index=False)
        text = json.dumps({"formula": "y ~ x0 + x1 + x2", "family": "gamma"})
        agreed = Agreement(Study.from_json(text).digest, centres=dict.fromkeys(columns, (0.0, 1.0))).to_json()
        site = SiteConfig("site-0", "flower", folder, DataSource("rows.csv"), permit=permissions)
        self._service = site_service(site)
        self._send(OPEN, run_of("gd", 1, loss="gamma", study=text, agreement=agreed).agreed(), 1)

    def ask(self, w, exchange=2):
        """Gradient and expected Hessian."""
        frame = encode(Point(w), Envelope(1, handler="expected_information"), WIRE_PRECISIONS["float64"])
        return decode(Information, self._send(ASK, frame, exchange))[0]

    def _send(self, kind, body, exchange):
        reply = Packet.decode(self._service.answer(Packet(kind, bytes(16), 0, exchange, 0, 1, body).encode()))
        if reply.kind != ANSWER:
            raise Refused(reply.body.decode())
        return reply.body


def largest_by_expected_curvature(folder, permissions):
    """exp(-z) of one row is more than that of all others, at coefficients where the expected curvature is 1 for all."""
    study = GammaStudy(folder, permissions)
    gradient = study.ask(np.array([-900.0, 0.0, 0.0, 1800.0])).gradient
    row = study.rows[np.argmax(study.rows[:, 0])]
    return np.abs(gradient[:3] / gradient[3] - row).max()


def test_without_a_guard_an_expected_curvature_hides_a_gradient_about_one_row(tmp_path):
    assert largest_by_expected_curvature(tmp_path / "a", GUARD_OFF) < 1e-4


def test_by_default_the_observed_curvature_is_looked_at_as_well(tmp_path):
    with pytest.raises(Refused, match=r"^R4"):
        largest_by_expected_curvature(tmp_path / "a", DEFAULTS)
    GammaStudy(tmp_path / "b", DEFAULTS).ask(np.zeros(4))
