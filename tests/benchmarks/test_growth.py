"""Exponents of growth: what is fitted, and what is refused."""

import sys
from unittest import mock

import pytest

import fedns
from benchmarks import growth
from fedns.methods import METHODS

SIZES = (100, 200, 400, 800)


def test_the_exponent_is_that_of_what_grows():
    assert growth.exponent(SIZES, [3e-6 * n**1.5 for n in SIZES], 0.0) == pytest.approx(1.5)
    assert growth.exponent(SIZES, [0.01 + 1e-4 * n for n in SIZES], 0.01) == pytest.approx(1.0)
    assert growth.exponent(SIZES, [0.01 + 1e-9 * n for n in SIZES], 0.01) == pytest.approx(0.0, abs=1e-3)


def test_every_method_is_measured():
    assert {type(make(8)) for make, _ in growth.METHODS.values()} == {METHODS[name] for name in METHODS}


def test_a_method_that_grows_too_fast_is_named(capsys):
    found = {"rows": (1.05, 0.0), "clients": (1.0, 1.3), "columns": (1.0, 1.0), "sketch_size": (0.0, 1.0)}
    with (
        mock.patch.object(growth, "measured", lambda method, axis: found[axis]),
        mock.patch.object(growth, "overhead_microseconds", lambda: 2.5),
        mock.patch.object(sys, "argv", ["growth", "--methods", "FedNS, SJLT"]),
        pytest.raises(SystemExit) as ended,
    ):
        growth.main()
    assert ended.value.code == (
        "growth above what is stated:\n"
        "FedNS, SJLT: memory grows with the clients to the power 1.30, stated is 1\n"
        "FedNS: 2.50 microseconds a round for a client, at most 2"
    )
    assert "1.05, 0.00" in capsys.readouterr().out


def test_costs_are_those_of_a_round():
    shards = growth.Shape(rows=60, clients=3, columns=4).shards()
    assert growth.least_seconds([(fedns.FedNewton(), shards)], max, 1.0)[0] > 0
    assert growth.peak_bytes(fedns.FedNewton(), shards) > 8 * 3 * 10  # three packed Hessians


@pytest.mark.parametrize(
    ("most", "attempts"), [(0.5, 2), (0.0, growth.ATTEMPTS)], ids=["until it is enough", "but not for ever"]
)
def test_what_grows_too_fast_is_timed_again(monkeypatch, most, attempts):
    monkeypatch.setattr(growth, "ENOUGH_SECONDS", 0.0)
    costs = iter([1.0, 0.4, 0.3, 0.2])
    cases = [(fedns.FedNewton(), growth.Shape(rows=60, clients=3, columns=4).shards())]
    growth.least_seconds(cases, lambda times: next(costs), most)
    assert len(list(costs)) == growth.ATTEMPTS - attempts
