"""Feature maps in a study: the pooled answer of scikit-learn on features made another way, and the same bits over sites."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from tests.studies.situations import save
from tests.studies.test_federated import Federation

import fedns
from fedns.core.errors import ConfigError
from fedns.core.messages.encoding import decode
from fedns.federation.protocol.packets import Packet
from fedns.methods.exchanges.landmarks import GroupMeans
from fedns.studies.fit import fit_study
from fedns.studies.study import Study

CASE = {"event": ("case",), "non_event": ("control",)}
STRENGTH = 1e-3


def standardised(tables):
    """Age and dose in units of their standard deviations, and a column for each level of arm but the first."""
    rows = pd.concat(tables.values())
    numbers = (rows[["age", "dose"]] - rows[["age", "dose"]].mean()) / rows[["age", "dose"]].std(ddof=0)
    return np.column_stack([numbers, rows["arm"] == "low", rows["arm"] == "placebo"]).astype(float), rows


def kernel_features(rule, agreement, columns):
    width = rule.width or agreement.width
    if rule.kind != "nystroem":
        omega = fedns.RandomFourier(rule.size, 1.0, rule.kernel, rule.seed).frequencies(columns.shape[1]) / width
        angles = columns @ omega.T
        waves = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        return waves, np.sqrt(2 / rule.size)
    kernel, gamma = (rbf_kernel, 0.5 / width**2) if rule.kernel == "gaussian" else (laplacian_kernel, 1 / width)
    landmarks = np.array(agreement.landmarks)
    root = scipy.linalg.sqrtm(kernel(landmarks, landmarks, gamma=gamma)).real
    return np.linalg.solve(root, kernel(columns, landmarks, gamma=gamma).T).T, 1.0


@pytest.mark.parametrize(
    "rule",
    [
        fedns.MapRule("fourier", 12, width=1.5, seed=3),
        fedns.MapRule("fourier", 12, kernel="laplace"),
        fedns.MapRule("nystroem", 9),
        fedns.MapRule("nystroem", 9, kernel="laplace", width=4.0),
    ],
    ids=["waves", "waves of laplace", "landmarks", "landmarks of laplace"],
)
@pytest.mark.parametrize("family", ["binomial", "gaussian"])
def test_the_pooled_answer(rule, family, three_sites, tmp_path):
    outcome = "ill" if family == "binomial" else "score"
    study = Study(
        f"{outcome} ~ age + dose + arm", family, strength=STRENGTH, feature_map=rule, **(CASE if outcome == "ill" else {})
    )
    fit = fit_study(study, three_sites)
    columns, rows = standardised(three_sites)
    made, scale = kernel_features(rule, fit.agreed.design.agreement, columns)
    features = scale * made.reshape(len(columns), -1)
    order = fit.coefficients[1:] if rule.kind == "nystroem" else _paired(fit.coefficients[1:])
    margins = fit["Intercept"] + features @ order
    if family == "binomial":
        pooled = LogisticRegression(C=1 / (len(rows) * STRENGTH), tol=1e-12, solver="newton-cholesky", max_iter=1000)
        expected = pooled.fit(features, rows["ill"] == "case").decision_function(features)
    else:
        pooled = Ridge(alpha=len(rows) * STRENGTH, solver="svd")
        expected = pooled.fit(features, rows["score"]).predict(features)
    assert fit.converged and len(fit.names) == 1 + rule.size
    assert np.abs(margins - expected).max() <= 1e-6
    assert Federation(save(three_sites, tmp_path), tmp_path).fit(study).coefficients.tobytes() == fit.coefficients.tobytes()


def _paired(coefficients):
    """The library has all cosines first, then all sines."""
    return np.stack(np.split(coefficients, 2), axis=-1).ravel()


def test_landmarks_are_means_of_enough_rows(three_sites, tmp_path):
    """A site tells of no group below its owner's limit, and says by that how many landmarks there can be."""
    study = Study("score ~ age + dose", "gaussian", strength=STRENGTH, feature_map=fedns.MapRule("nystroem", 40))
    federation = Federation(save(three_sites, tmp_path), tmp_path, smallest_level=20)
    packets = []
    federation.transport.after = lambda site, payload: packets.append(payload) or payload
    with pytest.raises(ConfigError, match=r"the sites gave (\d+) groups of at least 5 rows for 40 landmarks: ask for"):
        federation.fit(study)
    bodies = [Packet.decode(packet, 2**20).body for packet in packets if b"GroupMeans" in packet]
    sizes = [decode(GroupMeans, body)[0].sizes for body in bodies]
    assert len(sizes) == 3 and all(rows.min() >= 20 for rows in sizes)


def test_a_map_that_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="give them a penalty"):
        Study("y ~ x", "gaussian", feature_map=fedns.MapRule("fourier", 10))
    with pytest.raises(ConfigError, match="size must be an even number from 2 to 1000, got 7"):
        fedns.MapRule("fourier", 7)
    with pytest.raises(ConfigError, match=r"unknown setting of \[feature_map\] 'wide'"):
        Study.from_dict({"formula": "y ~ x", "family": "gaussian", "feature_map": {"kind": "fourier", "size": 4, "wide": 1}})


def test_a_study_with_a_map_is_read_back():
    rule = fedns.MapRule("nystroem", 20, width=2.0)
    study = Study("y ~ x", "gaussian", strength=0.1, feature_map=rule)
    assert Study.from_json(study.to_json()) == study
    assert "feature_map" not in Study("y ~ x", "gaussian").as_dict()  # digests of studies without a map stay
