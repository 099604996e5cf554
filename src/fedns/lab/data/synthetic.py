"""Synthetic data of a chosen shape, spectrum and heterogeneity.

Site s draws rows x = a_s + Q diag(sqrt(j^-decay)) z with z standard normal and Q a random rotation, so the
covariance has eigenvalues 1, 2^-decay, 3^-decay, ... The margin is x.w_s. With heterogeneity h, a_s and w_s differ from
site to site by h times a draw of their own (h = 0: all sites alike). Margins are scaled to standard deviation 2 at
h = 0. Targets are sign(margin + noise * logistic) or, for regression, margin + noise * normal.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import DTypeLike

from fedns.core.checked import Checked, Count, CountOrZero, NotNegative, parsed
from fedns.core.errors import ConfigError, DataError
from fedns.core.types import FloatArray
from fedns.numerics.rng import generator
from fedns.studies.tables.files.file_rows import FileRows

PREFIX = "synthetic:"
CHUNK_ROWS = 65536  # part of what a seed means: changing it changes the data
MARGIN_DEVIATION = 2.0  # classes then overlap as in real data: the best classifier is right in about four of five rows


@dataclass(frozen=True)
class SyntheticSpec(Checked):
    """The settings of `synthetic:key=value,...`, with the defaults."""

    is_settings: ClassVar[bool] = True
    rows: Count = 20000
    columns: Count = 50
    task: Literal["binary", "regression"] = "binary"
    decay: NotNegative = 1.0  # eigenvalues of the covariance fall like j^-decay
    heterogeneity: NotNegative = 0.5  # how far sites differ; 0 makes them alike
    sites: Count = 10  # of sizes that differ by at most one, stored back to back
    noise: NotNegative = 1.0  # 0 makes the targets a function of the rows
    seed: CountOrZero = 0
    rotate: bool = True  # False leaves the columns uncorrelated

    @property
    def description(self) -> str:
        return (
            f"synthetic {self.task} data: {self.rows} rows, {self.columns} columns, {self.sites} sites, "
            f"decay {self.decay:g}, heterogeneity {self.heterogeneity:g}, noise {self.noise:g}, seed {self.seed}"
        )


PRESETS = {
    "susy": SyntheticSpec(rows=5_000_000, columns=18, sites=1000),
    "covtype": SyntheticSpec(rows=581_012, columns=54, sites=200),
}


class _Model(NamedTuple):
    """Everything but the rows, in the basis in which the covariance is diagonal."""

    deviations: FloatArray  # (columns,), square roots of the eigenvalues
    rotation: FloatArray | None  # (columns, columns)
    means: FloatArray  # (sites, columns)
    coefficients: FloatArray  # (sites, columns)


def parse(name: str) -> SyntheticSpec:
    """The spec behind `synthetic:rows=1000,decay=2` or `synthetic:susy,rows=50000`."""
    spec = SyntheticSpec()
    for position, item in enumerate(filter(None, name.removeprefix(PREFIX).replace(" ", "").split(","))):
        key, equals, text = item.partition("=")
        if equals:
            spec = _changed(spec, key, text)
        elif position == 0 and key in PRESETS:
            spec = PRESETS[key]
        else:
            raise DataError(
                f"'{item}' in '{name}' is neither key=value nor, in first place, one of the shapes {', '.join(PRESETS)}"
            )
    if spec.sites > spec.rows:
        raise DataError(f"synthetic data has {spec.rows} rows for {spec.sites} sites: use at most {spec.rows} sites")
    return spec


def generate(spec: SyntheticSpec, dtype: DTypeLike = np.float64) -> FileRows:
    """Draw the rows chunk by chunk, each from a generator of its own; beside the result, one chunk is held."""
    model = _draw_model(spec)
    features = np.empty((spec.rows, spec.columns), dtype=dtype)
    targets = np.empty(spec.rows)
    site = (np.arange(spec.rows, dtype=np.int64) * spec.sites // spec.rows).astype(np.int32)
    for chunk, start in enumerate(range(0, spec.rows, CHUNK_ROWS)):
        owned = site[start : start + CHUNK_ROWS]
        stop = start + owned.size
        rows = generator(spec.seed, "synthetic rows", client=chunk).standard_normal((owned.size, spec.columns))
        rows *= model.deviations
        rows += model.means[owned]
        margins = np.einsum("ij,ij->i", rows, model.coefficients[owned])
        features[start:stop] = rows if model.rotation is None else rows @ model.rotation.T
        targets[start:stop] = _targets(spec, margins, generator(spec.seed, "synthetic noise", client=chunk))
    return FileRows(features, targets, groups=site, source=f"synthetic, made by fedns ({spec.description})")


def _draw_model(spec: SyntheticSpec) -> _Model:
    draw = generator(spec.seed, "synthetic model")
    deviations = np.arange(1, spec.columns + 1, dtype=np.float64) ** (-spec.decay / 2)
    shared = _unit_margin(draw.standard_normal((1, spec.columns)), deviations)
    own = _unit_margin(draw.standard_normal((spec.sites, spec.columns)), deviations)
    means = spec.heterogeneity * deviations * draw.standard_normal((spec.sites, spec.columns))
    coefficients = MARGIN_DEVIATION * (shared + spec.heterogeneity * own)
    return _Model(deviations, _rotation(spec) if spec.rotate else None, means, coefficients)


def _unit_margin(coefficients: FloatArray, deviations: FloatArray) -> FloatArray:
    """Scale each row of coefficients so that its margin has standard deviation 1."""
    return np.asarray(coefficients / np.linalg.norm(coefficients * deviations, axis=1, keepdims=True))


def _rotation(spec: SyntheticSpec) -> FloatArray:
    normal = generator(spec.seed, "synthetic rotation").standard_normal((spec.columns, spec.columns))
    orthogonal, triangle = np.linalg.qr(normal)
    # Without the signs, the distribution over rotations would depend on LAPACK's convention.
    return np.asarray(orthogonal * np.where(np.diag(triangle) < 0, -1.0, 1.0))


def _targets(spec: SyntheticSpec, margins: FloatArray, draw: np.random.Generator) -> FloatArray:
    if spec.task == "regression":
        return margins + spec.noise * draw.standard_normal(margins.size)
    return np.where(margins + spec.noise * draw.logistic(size=margins.size) > 0, 1.0, -1.0)


def _changed(spec: SyntheticSpec, key: str, text: str) -> SyntheticSpec:
    hints = get_type_hints(SyntheticSpec)
    kinds = {field.name: hints[field.name] for field in fields(SyntheticSpec)}
    if key not in kinds:
        raise DataError(f"synthetic data has no setting '{key}': use {', '.join(kinds)}")
    try:
        return replace(spec, **{key: parsed(key, kinds[key], text)})
    except ConfigError as error:
        raise DataError(f"synthetic data: {error}") from None
