"""What a site's limits mean for its table, in sentences, before anything leaves it."""

from __future__ import annotations

from pathlib import Path

from fedns.core.shards import Shards
from fedns.federation.site.budget import Budget, fingerprint
from fedns.federation.site.levels import has_small_group, named_columns, rare_levels
from fedns.federation.site.permissions import Permissions, changed

_RARE = {
    "blank": "those rows are taken to have the usual value",
    "refuse": "this site will refuse",
    "show": "an answer can show who has it",
}


def meaning(
    permissions: Permissions, shards: Shards, state: Path | None = None, *, intercept: bool = True, outputs: int = 1
) -> list[str]:
    """One sentence per limit that matters here; `state` is the folder with the site's budget; outputs: margins of a row."""
    rows, width = shards.num_samples, (shards.num_columns + int(intercept)) * outputs
    found = [f"{rows} rows, {width} coefficients{' with the intercept' if intercept else ''}"]
    if rows < permissions.smallest_rows:
        return [*found, f"fewer rows than your limit of {permissions.smallest_rows}: this site will refuse"]
    found += _answers(permissions, rows, width)
    found += _levels(permissions, shards, outputs)
    if state is not None:
        spent, size = Budget(state, fingerprint(shards)).spent(), rows * shards.num_columns
        found.append(
            f"asked about at {spent.amounts.points} of {permissions.points} permitted points; sent {spent.numbers} of "
            f"{permissions.largest_released_fraction * size:.0f} permitted numbers and {spent.sketched} of "
            f"{permissions.largest_sketched_fraction * size:.0f} in sketches"
        )
    return [*found, *(f"changed by you: {text}" for text in changed(permissions))]


def _answers(permissions: Permissions, rows: int, width: int) -> list[str]:
    def verdict(what: str, needed: float) -> str:
        if rows >= needed:
            return f"{what} of {width} coefficients is permitted"
        return f"{what} of {width} coefficients needs {needed:g} rows: this site will refuse it"

    curvature = max(permissions.smallest_rows, permissions.rows_per_coefficient * width)
    found = [verdict("a gradient", width + permissions.rows_beyond_coefficients), verdict("a full Hessian", curvature)]
    if rows >= curvature:
        largest = min(permissions.largest_sketch_fraction * rows, float(rows))
        buckets = min(largest, rows / permissions.rows_per_bucket if permissions.rows_per_bucket else largest)
        seed = "the coordinator's" if permissions.job_seed else "secret"
        found.append(f"sketches of up to {int(largest)} rows, sjlt up to {int(buckets)}, with {seed} random numbers")
    return found


def _levels(permissions: Permissions, shards: Shards, outputs: int) -> list[str]:
    limit, found = permissions.smallest_level, []
    rare = rare_levels(shards, limit, named_columns(shards, permissions.categories))
    if rare.outcome or (outputs > 1 and has_small_group(shards.targets, limit)):
        found.append(f"an outcome has fewer rows than your limit of {limit}: this site will refuse")
    for column in rare.columns.tolist():
        name = shards.columns[column] if shards.columns else str(column)
        found.append(f"column '{name}' has a level in fewer than {limit} rows: {_RARE[permissions.rare_levels]}")
    return found
