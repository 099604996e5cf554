"""A comparison of methods in this process: its settings as a value, a file or a command.

Every setting is declared once, as a type with its limit and one sentence; `--help`, the documentation and what refuses a
value come from there. Runs over sites share some of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar

from fedns.core.checked import Checked, Count, Fraction, Known, Limit, NotNegative, Unset, described, filled, located
from fedns.core.errors import ConfigError
from fedns.core.files import as_toml, read_toml

DEFAULT_CLIENTS = 10
SCALINGS = ("none", "maxabs", "standardise")
MISSING_RULES = ("refuse", "rows", "mean")  # what is done with rows that miss a value


def names_of(setting: str) -> tuple[str, ...]:
    """What a setting may be called. Imported here: a command that only shows its help does not load the kernels."""
    from fedns.core.messages import WIRE_PRECISIONS
    from fedns.models.losses import LOSSES
    from fedns.numerics.backends.devices import DEVICES
    from fedns.sketches import SKETCHES

    return {"device": DEVICES, "loss": tuple(LOSSES), "sketch": tuple(SKETCHES), "wire": tuple(WIRE_PRECISIONS)}[setting]


# The settings that several kinds have, or that are one of some names.
Strength = Annotated[NotNegative, "Ridge strength s of the penalty (s/2)|w|^2."]
Intercept = Annotated[bool, "Add an unpenalised intercept."]
SketchName = Annotated[str, Known(lambda: names_of("sketch")), "Sketch of methods that use one."]
SketchSize = Annotated[Count, "Rows of the sketch."]
Rounds = Annotated[Count, "Most rounds of a run."]
Seed = Annotated[int, Limit(">= 0 and < 2^63", lambda seed: 0 <= seed < 2**63), "Seed of splits and methods."]
Wire = Annotated[str, Known(lambda: names_of("wire")), "Precision of real numbers in messages: float64 or float32."]
Loss = Annotated[str, Known(lambda: ("auto", *names_of("loss"))), "logistic, squared, poisson, or auto by the targets."]
Scaling = Annotated[str, Known(SCALINGS), "Column scaling: none, maxabs or standardise."]
Missing = Annotated[str, Known(MISSING_RULES), "Missing values: refuse, drop the rows, or fill in the mean."]
Device = Annotated[str, Known(lambda: names_of("device")), "What passes over the rows: cpu or cuda."]
MethodName = Annotated[str, "any that `fedns methods` lists, parameters behind a colon; auto needs none"]


@described
@dataclass(frozen=True)
class Compare(Checked):
    """Methods that are compared on the same data; creating one checks all that can be without the data."""

    is_settings: ClassVar[bool] = True
    dataset: Annotated[str, "A name, a path or synthetic:..."] = ""
    methods: Annotated[tuple[str, ...], "Methods, separated by commas; parameters as name:key=value;key=value."] = (
        "auto", "fednewton", "fedns", "fedndes",
    )  # fmt: skip
    target: Annotated[str | None, "Column of the targets in a CSV or Parquet file."] = None
    group: Annotated[str | None, "Column of the sites, for --split group."] = None
    weight: Annotated[str | None, "Column of sample weights."] = None
    positive: Annotated[str | None, "The label that becomes +1, all others -1."] = None
    scale: Scaling = "none"
    clients: Annotated[
        Count | None, "Clients that the rows are given to; leave out with --split group.", Unset(str(DEFAULT_CLIENTS))
    ] = None
    split: Annotated[str, "iid, contiguous, sorted, dirichlet:ALPHA, quantity:ALPHA or group."] = "iid"
    loss: Loss = "auto"
    strength: Strength = 1e-3
    intercept: Intercept = False
    sketch: SketchName = "srht"
    sketch_size: SketchSize = 32  # fedns.sketches.DEFAULT_SIZE, which numpy comes with
    rounds: Rounds = 30
    tol: Annotated[NotNegative | None, "Stop when the gap to the pooled optimum is at most this."] = 1e-10
    trials: Annotated[Count, "Repetitions with seeds SEED, SEED + 1, ..."] = 5
    seed: Seed = 0
    wire: Wire = "float64"
    participation: Annotated[Fraction, "Part of the clients drawn for each round."] = 1.0
    threads: Annotated[Count | None, "Threads to use.", Unset("all cores")] = None
    device: Annotated[Device | None, Unset("cpu")] = None
    out: Annotated[str | None, "Folder of the results.", Unset("runs/DATASET")] = None
    missing: Missing = "refuse"

    def __post_init__(self) -> None:
        check_methods(self.methods, self.sketch, self.sketch_size)
        if not self.dataset:
            raise ConfigError('no data set was given: set dataset = "..."')

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "") -> Compare:
        """From plain values, as a command line gives them; where: the file that they are from, for what is said of them."""
        plain = dict(values)
        if "methods" in plain:
            plain["methods"] = _as_methods(where, plain["methods"])
        if isinstance(number := plain.get("positive"), int | float) and not isinstance(number, bool):
            plain["positive"] = f"{number:g}"  # labels are compared as text or as numbers later
        return filled(cls, where, plain)

    @classmethod
    def from_toml(cls, path: str | Path, overrides: Mapping[str, Any] | None = None) -> Compare:
        """From a file, with these settings in place of the file's."""
        values = read_toml(path)
        changed = dict(overrides or {})
        # Natural sites bring their own number, so the file's would only stand in the way.
        if changed.get("split") == "group" and "clients" not in changed:
            values.pop("clients", None)
        return cls.from_dict(values | changed, str(path))

    @property
    def num_clients(self) -> int | None:
        """The number of clients to split over; None where the data's own sites decide."""
        return self.clients or (None if self.split == "group" else DEFAULT_CLIENTS)

    @property
    def folder(self) -> Path:
        """Where the results go."""
        return Path(self.out or Path("runs") / _file_name(self.dataset))

    def as_dict(self) -> dict[str, Any]:
        """The settings in order; tuples as lists."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}

    def to_toml(self) -> str:
        """A file that `from_toml` reads back to an equal value; a setting that is not set has no line."""
        return "".join(f"{key} = {as_toml(value)}\n" for key, value in self.as_dict().items() if value is not None)

    def to_command(self) -> str:
        """The command line that runs this comparison."""
        words = ["fedns", "compare", self.dataset, "--methods", ",".join(self.methods)]
        for one in fields(self)[2:]:
            value = getattr(self, one.name)
            if value is None or (value == one.default and one.name not in ("strength", "seed", "rounds", "tol")):
                continue
            flag = "--" + one.name.replace("_", "-")
            words += [flag] if isinstance(value, bool) else [flag, str(value)]
        return shlex.join(words)


Spec = Compare  # by this name users of the package have it, as `fedns.Spec`


def check_methods(methods: tuple[str, ...], sketch: str, sketch_size: int) -> None:
    from fedns.runs.methods import parse_methods

    parse_methods(methods, sketch, sketch_size)


def _as_methods(where: str, value: Any) -> tuple[str, ...]:
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(located(where, f"methods must be a list of texts, got {value!r}"))
    from fedns.runs.methods import alternatives

    return tuple(one for text in texts if text.strip() for one in alternatives(text))


def _file_name(dataset: str) -> str:
    """A folder name for a data set that may be a path or a recipe."""
    stem = Path(dataset).stem if not dataset.startswith("synthetic:") else dataset
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in stem) or "data"
