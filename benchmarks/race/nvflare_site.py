"""A site of NVFlare's Newton regression: gradient and Hessian of the penalised sum over its rows."""

import sys
from pathlib import Path

import numpy as np
import nvflare.client as flare
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.np.constants import NPConstants


def main() -> None:
    folder, strength = Path(sys.argv[1]), float(sys.argv[2])
    flare.init()
    rows = np.load(folder / f"{flare.get_site_name()}.npz")
    x, y = rows["x"], rows["y"][:, None]
    ridge = strength * y.size
    while flare.is_running():
        w = flare.receive().params[NPConstants.NUMPY_KEY].astype(np.float64)
        mean = 1.0 / (1.0 + np.exp(-(x @ w)))
        gradient = x.T @ (y - mean) - ridge * w
        hessian = x.T @ (mean * (1.0 - mean) * x) + ridge * np.eye(w.size)
        meta = {FLMetaKey.NUM_STEPS_CURRENT_ROUND: y.size}
        flare.send(FLModel(params={"gradient": gradient, "hessian": hessian}, params_type=ParamsType.FULL, meta=meta))


if __name__ == "__main__":
    main()
