"""The paper's theorems on small problems: what must hold whatever the machine, and verdicts that follow the figures."""

import math

import numpy as np
import pytest

import fedns
from fedns.core.errors import ConfigError
from fedns.lab.paper.part import verdicts_on
from fedns.lab.paper.theorems import contraction, excess_risk, iterations
from fedns.lab.paper.theorems.known_kernel import FEATURES, Cosines, KnownKernel, exact_solution
from fedns.lab.paper.theorems.measure import Path, fit_power, follow
from fedns.lab.paper.theorems.settings import RIDGE_STRENGTH, ridge_setting

# Ridge regression is solved by one exact step, so that on it Newton's rounds say nothing; these are a logistic problem's.
NEWTON_BENDS = {"bend_exact": 0.67, "bend_newton": 0.6}


@pytest.fixture(scope="module")
def cases():
    return contraction.measure(ridge_setting(40), seeds=5)


@pytest.fixture(scope="module")
def curves():
    methods = (excess_risk.POOLED, excess_risk.NS, excess_risk.NDES, excess_risk.SHARED)
    return excess_risk.measure(KnownKernel(0.5, 0.5), [256, 512, 1024, 2048, 4096], 8, methods)


@pytest.fixture(scope="module")
def rounds():
    few, more = ridge_setting(4, rows=2048, columns=32), ridge_setting(8, rows=2048, columns=32)
    return iterations.measure(few, "m k", 3) + iterations.measure(more, "k", 2), iterations.far_starts(few, 2)


def test_the_effective_dimension_is_the_one_built_in():
    setting = ridge_setting(16, rows=512, columns=32)
    spectrum = np.arange(1.0, 33.0) ** -2.0
    assert setting.dimension == pytest.approx((spectrum / (spectrum + RIDGE_STRENGTH)).sum(), rel=1e-10)
    assert setting.local_dimension == pytest.approx(setting.dimension, rel=1e-10)


def test_a_fixed_sketch_size_converges_linearly(cases):
    for case in cases:
        if case.form != "growing" and case.converged == 1.0:
            assert abs(case.trend.exponent) < 0.2 + 2.5 * case.trend.error, (case.form, case.k)


def test_a_growing_sketch_size_converges_superlinearly(cases):
    (growing,) = [case for case in cases if case.form == "growing"]
    rounds, factors = growing.samples
    early, late = factors[rounds <= np.median(rounds)], factors[rounds > np.median(rounds)]
    assert growing.converged == 1.0
    assert np.exp(np.log(late).mean()) < 0.8 * np.exp(np.log(early).mean())
    assert growing.trend.exponent == pytest.approx(-1.0, abs=0.4)


def test_the_factor_falls_like_the_root_of_all_rows(cases):
    assert contraction.size_law(cases, "gram").exponent == pytest.approx(-0.5, abs=0.13)
    assert contraction.size_law(cases, "gram", less=1.0).exponent == pytest.approx(-0.5, abs=0.08)
    for case in cases:
        small = 8 * case.k <= case.setting.rows_padded
        if case.form == "gram" and small and case.size > 6 * case.setting.dimension:
            assert 0.6 < case.factor / case.predicted < 1.1


def test_a_row_per_client_is_worth_m_rows_of_one_sketch(cases):
    assert contraction.findings_of(cases)["clients_worth"] == pytest.approx(1.0, abs=0.35)


def test_sketch_sizes_grow_with_the_round_and_so_do_the_bytes():
    method = fedns.FedNS(sketch=fedns.SRHT(3), growth="log2")
    assert [method.sketch_in(t).size for t in (1, 3, 7)] == [3, 12, 27]
    setting = ridge_setting(4, rows=512, columns=8)
    for aggregation in ("gram", "sum"):
        growing = fedns.FedNS(sketch=fedns.SRHT(3), growth="log2", aggregation=aggregation, line_search=fedns.ArmijoSearch())
        sent = np.diff(fedns.simulate(growing, setting.problem, setting.shards, rounds=3).uplink_bytes)
        assert sent[2] - sent[0] == 4 * (12 - 3) * 8 * 8
    with pytest.raises(ConfigError, match="growth"):
        fedns.FedNS(growth="log")


def test_a_method_can_start_elsewhere():
    setting = ridge_setting(4, rows=256, columns=8)
    start = setting.optimum.coefficients + 3.0
    for method in (fedns.FedNS(), fedns.FedNDES()):
        path = follow(setting, method, 2, seed=0, start=start)
        assert path.distances[0] == pytest.approx(3.0 * math.sqrt(8))
        assert path.distances[-1] < path.distances[0]


def test_rounds_are_interpolated_on_the_logarithm():
    path = Path(np.array([1.0, 1e-1, 1e-3]), np.ones(3), np.ones(2))
    assert path.rounds_to(1e-2) == pytest.approx(1.5)
    assert path.rounds_to(1.0) == 0.0 and path.rounds_to(1e-4) == math.inf


def test_a_power_law_is_found():
    law = fit_power([1.0, 2.0, 4.0], [3.0, 1.5, 0.75])
    assert (law.exponent, law.constant) == pytest.approx((-1.0, 3.0)) and law.error == pytest.approx(0.0, abs=1e-12)


def test_rounds_grow_like_the_digits_and_not_like_their_logarithm(rounds):
    findings = iterations.findings_of(*rounds)
    assert math.isnan(findings["bend_exact"])
    assert findings["bend_median"] == pytest.approx(1.0, abs=0.15)
    assert findings["rows_enough"] < 6 and findings["rows_unit_step"] < 10
    assert findings["far_reached"] == 1.0


def test_the_exact_solution_is_ridge_regression_on_all_rows():
    problem, shards = KnownKernel(0.5, 0.5).draw(512, 4, seed=1)
    optimum, dimension = exact_solution(problem, shards)
    features, strength = shards.rows.values, problem.penalty.strength
    gram = features.T @ features / 512
    solved = np.linalg.solve(gram + strength * np.eye(len(gram)), features.T @ shards.targets / 512)
    np.testing.assert_allclose(optimum.coefficients, solved, rtol=1e-7, atol=1e-9)
    assert dimension == pytest.approx(fedns.effective_dimension(problem, shards))


def test_the_known_kernel_has_the_covariance_it_states():
    kernel = KnownKernel(0.5, 0.5)
    grid = (np.arange(4096) + 0.5) / 4096
    mapped = Cosines(FEATURES, 2.0).transform(grid[:, None])
    np.testing.assert_allclose(mapped.T @ mapped / 4096, np.diag(kernel.spectrum), atol=1e-12)
    assert kernel.excess_risk(kernel.target / np.sqrt(kernel.spectrum)) == pytest.approx(0.0, abs=1e-20)


def test_the_excess_risk_falls_as_claimed_and_like_the_pooled_one(curves):
    pooled, full, efficient, _ = curves
    for curve in (pooled, full, efficient):
        assert curve.slope == pytest.approx(curve.kernel.rate, abs=0.1)
    assert (efficient.risks.mean(axis=0) < 1.1 * pooled.risks.mean(axis=0)).all()
    np.testing.assert_allclose(full.risks, pooled.risks, rtol=0.05)


def check_result(charts, tables, verdicts):
    assert len({chart.name for chart in charts}) == len(charts)
    for chart in charts:
        assert chart.lines, chart.name
        for line in chart.lines:
            assert np.isfinite(line.y).all() and all(np.isfinite(x).all() for x in line.x.values())
            if chart.y.logarithmic:
                assert min(line.y) > 0
    for title, headings, rows in tables:
        assert title and rows and all(len(row) == len(headings) for row in rows)
    for verdict in verdicts:
        assert bool(verdict.condition) == (verdict.outcome == "holds if")
        assert verdict.evidence and "nan" not in verdict.evidence


def test_figures_tables_and_verdicts_are_well_formed(cases, curves, rounds):
    pairs = (
        (contraction, (cases,), contraction.findings_of(cases)),
        (iterations, rounds, iterations.findings_of(*rounds) | NEWTON_BENDS),
        (excess_risk, (curves,), excess_risk.findings_of(curves)),
    )
    for theorem, measured, findings in pairs:
        check_result(
            theorem.charts(*measured), theorem.tables(*measured), verdicts_on(claims_of(theorem, findings), findings)
        )


def claims_of(theorem, findings):
    return theorem.claims(findings) if theorem is excess_risk else theorem.CLAIMS


def outcome(theorem, findings, claim, **changes):
    changed = findings | changes
    return {verdict.claim: verdict.outcome for verdict in verdicts_on(claims_of(theorem, changed), changed)}[claim]


def test_verdicts_on_theorem_1_follow_the_figures(cases):
    findings, theorem = contraction.findings_of(cases), contraction
    assert outcome(theorem, findings, "Theorem 1, rate") == "holds if"
    assert outcome(theorem, findings, "Theorem 1, rate", trend_full=-0.9) == "holds"
    assert outcome(theorem, findings, "Theorem 1, rate", trend_growing=-0.1) == "does not hold"
    assert outcome(theorem, findings, "Theorem 1, bound") == "holds"
    assert outcome(theorem, findings, "Theorem 1, bound", largest_over_bound=1.5) == "does not hold"
    assert outcome(theorem, findings, "Theorem 1, sketch size") == "does not hold"
    assert outcome(theorem, findings, "Theorem 1, sketch size", smallest_k_over_features=1.0) == "holds"
    assert outcome(theorem, findings, "Theorem 1, proof") == "does not hold"
    assert outcome(theorem, findings, "Theorem 1, proof", clients_worth=0.05) == "holds"


def test_verdicts_on_theorem_2_follow_the_figures(rounds):
    findings, theorem = iterations.findings_of(*rounds), iterations
    findings |= NEWTON_BENDS
    assert outcome(theorem, findings, "Theorem 2, iterations") == "holds if"
    assert outcome(theorem, findings, "Theorem 2, iterations", bend_median=0.5) == "holds"
    assert outcome(theorem, findings, "Theorem 2, iterations", bend_exact=1.0) == "does not hold"
    assert outcome(theorem, findings, "Theorem 2, sketch size", rows_enough=2.0) == "holds"
    assert outcome(theorem, findings, "Theorem 2, sketch size", rows_enough=math.inf) == "does not hold"
    assert outcome(theorem, findings, "Theorem 2, start", far_reached=0.5) == "does not hold"
    assert outcome(theorem, findings, "Theorem 2, Algorithm 2") == "holds if"
    assert outcome(theorem, findings, "Theorem 2, Algorithm 2", printed_reached=1.0) == "holds"


def test_verdicts_on_theorem_3_follow_the_figures(curves):
    findings, theorem = excess_risk.findings_of(curves), excess_risk
    assert outcome(theorem, findings, "Theorem 3, FedNDES") == "holds if"
    assert outcome(theorem, findings, "Theorem 3, FedNDES", slower_shared=0.0, over_pooled_shared=1.0) == "holds"
    assert outcome(theorem, findings, "Theorem 3, FedNDES", slower_fedndes=0.3) == "does not hold"
    assert outcome(theorem, findings, "Theorem 3, FedNDES", over_pooled_fedndes=2.0) == "does not hold"
    assert outcome(theorem, findings, "Theorem 3, FedNS", slower_fedns=0.3) == "does not hold"
    assert outcome(theorem, findings, "Theorem 3, proof", largest_dimension_ratio=4.0) == "does not hold"
