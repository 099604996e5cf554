"""NVFlare's recipe for Newton regression in its simulator: FOLDER COLUMNS ROUNDS SITES STRENGTH."""

import sys
from pathlib import Path

from nvflare.app_common.np.recipes.lr.fedavg import FedAvgLrRecipe
from nvflare.recipe import SimEnv


def main() -> None:
    folder, columns, rounds, sites, strength = sys.argv[1:]
    recipe = FedAvgLrRecipe(
        min_clients=int(sites),
        num_rounds=int(rounds),
        num_features=int(columns) - 1,  # it adds one for an intercept, which this problem does not have
        train_script=str(Path(__file__).with_name("nvflare_site.py")),
        train_args=f"{folder} {strength}",
    )
    recipe.execute(SimEnv(num_clients=int(sites), workspace_root=f"{folder}/work"))


if __name__ == "__main__":
    main()
