"""A site that refuses what inference asks for costs the figures made of it, never the coefficients."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from tests.studies.conftest import made_up
from tests.studies.situations import STUDY, save
from tests.studies.test_federated import Federation

from fedns.core.errors import DataError
from fedns.core.messages.encoding import handler_named_in
from fedns.federation.protocol.packets import ASK, REFUSAL, Packet
from fedns.studies.fit import fit_study
from fedns.studies.outputs import write_fit

ASKED = (
    "register", "evaluate_locally", "describe_table", "describe_terms", "information", "curvature", "losses_along",
    "look_at_null",
)  # fmt: skip


def test_without_the_sums_the_model_based_errors_remain(tmp_path):
    paths = save(made_up(), tmp_path)
    fit, whole = Federation(paths, tmp_path, handlers=ASKED).fit(STUDY), fit_study(STUDY, paths)
    assert fit.converged and fit.coefficients.tobytes() == whole.coefficients.tobytes()
    assert np.array_equal(fit.standard_errors(), whole.standard_errors())
    with pytest.raises(DataError, match="its owner does not permit 'look_at_fit'"):
        fit.standard_errors("HC0")
    with pytest.raises(DataError, match="sums are not there"):
        _ = fit.goodness
    assert "no likelihood" in fit.summary() and "look_at_fit" in fit.summary()
    write_fit(fit, tmp_path / "out")
    model = json.loads((tmp_path / "out" / "model.json").read_text(encoding="utf-8"))
    assert set(model["inference"]["covariance"]) == {"model", "site"} and "look_at_fit" in " ".join(model["notes"])


def test_without_the_last_hessian_the_coefficients_remain(tmp_path):
    paths = save(made_up(), tmp_path)
    federation, whole = Federation(paths, tmp_path), fit_study(STUDY, paths)
    answer, asked = federation.transport.services["south"], []

    def refuses_the_second(frame: bytes) -> bytes:
        packet = Packet.decode(frame, 2**30)
        asked.append(packet.kind == ASK and handler_named_in(packet.body) == "information")
        return packet.reply(REFUSAL, b"R5: enough").encode() if sum(asked) > 1 else answer(frame)

    federation.transport.services["south"] = refuses_the_second
    fit = federation.fit(STUDY)
    assert fit.coefficients.tobytes() == whole.coefficients.tobytes()
    assert not fit.converged and fit.inference is None and "cannot be told" in fit.reason and "R5: enough" in fit.reason
    with pytest.raises(DataError, match="no standard errors"):
        fit.standard_errors()
    assert "no standard errors" in fit.summary()
    write_fit(fit, tmp_path / "out")
    with (tmp_path / "out" / "coefficients.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["name"] for line in lines] == list(fit.names)
    assert all(line["coefficient"] and not line["std_error"] + line["p_value"] + line["ratio"] for line in lines)
