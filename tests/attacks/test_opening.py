"""What a coordinator makes a site do before the first request: sketches to rehearse, studies to code, runs to keep."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tests.attacks.attacker import DEFAULTS, GUARD_OFF, Attacker, Refused
from tests.federation.in_process import run_of

from fedns.cli.serving import site_service
from fedns.core.shards import Shards
from fedns.federation.config import DataSource, SiteConfig
from fedns.federation.protocol.packets import OPEN, Packet
from fedns.methods.curvature import Iterate, SketchRequest
from fedns.numerics.cpu.backend import CpuBackend
from fedns.studies.design import rows
from fedns.studies.design.agreement import Agreement
from fedns.studies.study import Study

RANDOM = np.random.default_rng(6)
X = RANDOM.normal(size=(300, 8))
SHARDS = Shards.from_arrays(X, np.where(X[:, 0] + RANDOM.normal(size=300) > 0, 1.0, -1.0), [300])


@pytest.fixture
def sketches(monkeypatch):
    """The number of rows of every sketch that is taken: by the backend, which lies behind the guard."""
    taken = []
    take = CpuBackend.gradient_and_sketch

    def noting(self, loss, batch, w, plan, keys):
        taken.append(int(plan.sizes.max()))
        return take(self, loss, batch, w, plan, keys)

    monkeypatch.setattr(CpuBackend, "gradient_and_sketch", noting)
    return taken


def rehearsed(folder, permissions, method, size):
    return Attacker(SHARDS, folder, permissions, method, rehearses=True, sketch="gaussian", sketch_size=size)


def test_without_a_guard_opening_a_run_takes_a_sketch_of_any_size(tmp_path, sketches):
    rehearsed(tmp_path, GUARD_OFF, "fedns", 5000)
    assert 5000 in sketches


@pytest.mark.parametrize("method", ["fedns", "fedndes", "fedns:growth=adaptive", "fedns:growth=log2"])
def test_by_default_it_takes_none(method, tmp_path, sketches):
    attacker = rehearsed(tmp_path, DEFAULTS, method, 5000)
    assert sketches == []
    handler = "sized_curvature" if "adaptive" in method else "curvature"
    request = Iterate(np.zeros(9)) if method in ("fedns", "fedns:growth=log2") else SketchRequest(np.zeros(9), np.int32(900))
    with pytest.raises(Refused, match=r"^R3: a sketch of (900|5000) rows is more than 0.25 of its rows$"):
        attacker.ask(handler, request)
    assert sketches == []


def test_what_grows_beyond_the_limit_is_not_rehearsed(tmp_path, sketches):
    rehearsed(tmp_path / "off", GUARD_OFF, "fedns:growth=log2", 70)
    assert max(sketches) == 176  # 70 log2(3)^2, in the second round
    sketches.clear()
    rehearsed(tmp_path / "on", DEFAULTS, "fedns:growth=log2", 70)
    assert set(sketches) == {70}


def test_settings_within_settings_are_looked_at_too(tmp_path, passes):
    long = "fedns:line_search=aggregate;trials=1000000"
    Attacker(SHARDS, tmp_path / "off", GUARD_OFF, long)
    with pytest.raises(Refused, match=r"^R6: a setting of the method is larger than 1000$"):
        Attacker(SHARDS, tmp_path / "on", DEFAULTS, long, rehearses=True)
    assert passes == []


def opened(folder, permissions, runs):
    attacker = Attacker(SHARDS, folder, permissions, "gd")
    for _ in range(runs - 1):
        attacker.begin()
    return len(list(folder.glob("*.npz")))


def test_runs_are_kept_as_many_as_are_opened_unless_a_guard_counts_them(tmp_path):
    assert opened(tmp_path / "off", GUARD_OFF, 30) == 30
    with pytest.raises(Refused, match=r"^R6: it takes part in 20 runs an hour, those that it refused included$"):
        opened(tmp_path / "on", replace(DEFAULTS, runs_per_hour=20), 30)
    assert len(list((tmp_path / "on").glob("*.npz"))) == 20


class StudyAttacker:
    """Opens studies over a table of 60 rows."""

    def __init__(self, folder, permissions):
        folder.mkdir()
        table = pd.DataFrame({"y": RANDOM.normal(size=60), "a": ["u", "v"] * 30, "b": ["u", "v", "v"] * 20})
        table.to_csv(folder / "rows.csv", index=False)
        self.service = site_service(SiteConfig("site-0", "flower", folder, DataSource("rows.csv"), permit=permissions))

    def open(self, formula, agreement=""):
        text = json.dumps({"formula": formula, "family": "gaussian"})
        spec = run_of("gd", 1, loss="squared", study=text, agreement=agreement and agreement(text))
        reply = Packet.decode(self.service.answer(Packet(OPEN, bytes(16), 0, 1, 0, 0, spec.agreed()).encode()))
        return reply.body.decode()


def many_levels(text):
    """Levels that no row has: their products are columns all the same."""
    names = ("u", "v", *(f"{number:x}" for number in range(40)))
    return Agreement(Study.from_json(text).digest, {"a": names, "b": names}).to_json()


def test_a_study_with_more_columns_than_rows_is_not_coded(tmp_path, monkeypatch):
    made, make = [], rows.columns_of
    monkeypatch.setattr(rows, "columns_of", lambda design, table: (made.append(design.num_columns), make(design, table))[1])
    StudyAttacker(tmp_path / "off", GUARD_OFF).open("y ~ a:b", many_levels)
    assert made == [42 * 42]
    refusal = StudyAttacker(tmp_path / "on", DEFAULTS).open("y ~ a:b", many_levels)
    assert refusal == "R2: a gradient of 1764 coefficients needs at least 1774 rows, and it has fewer"
    small = replace(GUARD_OFF, largest_table_bytes=2**19)
    assert (
        StudyAttacker(tmp_path / "small", small).open("y ~ a:b", many_levels).startswith("R6: its rows, coded, would take")
    )
    assert made == [42 * 42]
