"""Twenty studies over three sites as processes of their own, with TLS and keys, on each engine: the simulator's answers."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest
from tests.processes import PATIENCE_SECONDS
from tests.studies.situations import save

from fedns.cli import main
from fedns.comparison.federation_demo import _PERMIT, site_processes
from fedns.core.errors import FednsError
from fedns.federation.config import EXPERIMENT_FILE, SITE_FILE, read_experiment
from fedns.federation.coordinator.coordinate import open_transport
from fedns.federation.processes import free_port
from fedns.federation.provision import init_federation
from fedns.studies.federated import fit_federation
from fedns.studies.fit import fit_study
from fedns.studies.study import ColumnRule, Study

CASE = {"event": ("case",), "non_event": ("control",)}
AGE = {"age": ColumnRule(range=(10.0, 120.0), unit="years")}
STUDIES = [
    Study("ill ~ age + dose + arm + sex", "binomial", **CASE),
    Study("ill ~ age * arm", "binomial", **CASE),
    Study("ill ~ poly(age, 2) + log(dose)", "binomial", **CASE),
    Study("ill ~ bs(age, df=4) + sex", "binomial", columns=AGE, **CASE),
    Study("ill ~ age + arm", "binomial", weights="weight", **CASE),
    Study("ill ~ age + arm", "binomial", strength=1e-3, **CASE),
    Study("ill ~ age + twin + sex", "binomial", **CASE),
    Study("ill ~ age + twin", "binomial", aliased="refuse", **CASE),
    Study("ill ~ dose_there", "binomial", **CASE),
    Study("ill ~ age + typo", "binomial", **CASE),
    Study("ill ~ age + code", "binomial", **CASE),
    Study("ill ~ gap + sex", "binomial", **CASE),
    Study("ill ~ gap + sex", "binomial", missing="complete", **CASE),
    Study("ill ~ gap + sex", "binomial", missing="mean", **CASE),
    Study("ill_there ~ age", "binomial", **CASE),
    Study("never ~ age + arm", "binomial", **CASE),
    Study("nothing ~ age", "gaussian"),
    Study("score ~ age + arm:sex", "gaussian"),
    Study("score ~ 0 + arm + offset(time)", "gaussian", strengths={"arm": 1e-2}),
    Study("falls ~ age + arm + offset(log(time))", "poisson"),
]


def tables_of(three_sites):
    tables = {}
    for name, frame in three_sites.items():
        south = name == "south"
        tables[name] = frame.assign(
            twin=2 * frame["age"] + 1,
            dose_there=frame["dose"] / (1000 if south else 1),
            typo=frame["arm"].replace("placebo", "plasebo") if south else frame["arm"],
            code=(frame["sex"] == "m") + (1 if south else 0),
            gap=frame["age"].where(frame["age"] > 52) if south else frame["age"],
            ill_there=frame["ill"].str.title() if south else frame["ill"],
            never=frame["ill"].where(frame["arm"] != "low", "control"),
        )
    return tables


FEW = (0, 6, 8, 13, 15, 19)  # an answer, a twin, a unit, missing values, separation, counts


@pytest.mark.parametrize("engine", ["flower", "nvflare"])
@pytest.mark.parametrize("chosen", [FEW, pytest.param(range(len(STUDIES)), marks=pytest.mark.nightly)], ids=["few", "all"])
def test_studies_over_real_sites(engine, chosen, three_sites, tmp_path, capsys):
    if importlib.util.find_spec({"flower": "flwr"}.get(engine, engine)) is None:
        pytest.skip(f"{engine} is not installed")
    federation = tmp_path / "trial"
    init_federation(federation, engine, list(three_sites), f"localhost:{free_port()}")
    paths = save(tables_of(three_sites), tmp_path)
    for name, path in paths.items():
        folder = federation / "sites" / name
        (folder / path.name).write_bytes(path.read_bytes())
        permit = _PERMIT.replace("smallest_level = 0", "smallest_level = 5")
        text = f'name = "{name}"\nengine = "{engine}"\n\n[data]\ndataset = "{path.name}"\n\n{permit}'
        (folder / SITE_FILE).write_text(text, encoding="utf-8")
    path = federation / "coordinator" / EXPERIMENT_FILE
    settings = path.read_text(encoding="utf-8").replace("timeout_seconds = 60", f"timeout_seconds = {PATIENCE_SECONDS:g}")
    path.write_text(settings, encoding="utf-8")
    experiment = read_experiment(path)
    refused = 0
    with site_processes(federation):
        with open_transport(experiment, logs=tmp_path / "logs") as transport:
            for number in chosen:
                study = STUDIES[number]
                folder = tmp_path / f"run-{number}"
                try:
                    here = fit_study(study, paths)
                except FednsError as refusal:
                    with pytest.raises(FednsError) as there:
                        fit_federation(study, experiment, transport, folder)
                    assert str(there.value) == str(refusal)
                    refused += 1
                    continue
                found = fit_federation(study, experiment, transport, folder)
                assert found.coefficients.tobytes() == here.coefficients.tobytes(), study.formula
                assert found.reason == here.reason and found.notes == here.notes
        assert refused == (2 if chosen == FEW else 8)
        study = tmp_path / "study.toml"
        study.write_text('formula = "score ~ age + arm"\nfamily = "gaussian"\n', encoding="utf-8")
        with pytest.raises(SystemExit) as ended:
            main(["fit", str(study), "--federation", str(federation), "--out", str(tmp_path / "fit")])
        assert ended.value.code in (0, None)
    model = json.loads((tmp_path / "fit" / "model.json").read_text(encoding="utf-8"))
    here = fit_study(Study("score ~ age + arm", "gaussian"), paths)
    assert np.array_equal(list(model["coefficients"].values()), here.coefficients)
    assert "converged" in capsys.readouterr().out
