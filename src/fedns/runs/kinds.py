"""The four kinds of run: a comparison in this process, and over sites a run over columns, a handshake and a study's fit.

Every setting is declared once, as a type with its limit and one sentence; `--help`, the documentation and what refuses a
value come from there. What a coordinator and its sites must agree on is the part in `AGREED`: that part travels.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from fedns.core.checked import Checked, Count, Fraction, Known, Limit, NotNegative, Unset, described, filled, located
from fedns.core.errors import ConfigError, MessageError, unknown
from fedns.core.files import as_toml, checked_name, read_toml
from fedns.runs.policy import Policy

DEFAULT_CLIENTS = 10
SCALINGS = ("none", "maxabs", "standardise")
MISSING_RULES = ("refuse", "rows", "mean")  # what is done with rows that miss a value


def _names(setting: str) -> tuple[str, ...]:
    """What a setting may be called. Imported here: a command that only shows its help does not load the kernels."""
    from fedns.core.messages import WIRE_PRECISIONS
    from fedns.models.losses import LOSSES
    from fedns.numerics.backends.devices import DEVICES
    from fedns.sketches import SKETCHES

    return {"device": DEVICES, "loss": tuple(LOSSES), "sketch": tuple(SKETCHES), "wire": tuple(WIRE_PRECISIONS)}[setting]


# The settings that several kinds have, or that are one of some names.
Strength = Annotated[NotNegative, "Ridge strength s of the penalty (s/2)|w|^2."]
Intercept = Annotated[bool, "Add an unpenalised intercept."]
SketchName = Annotated[str, Known(lambda: _names("sketch")), "Sketch of methods that use one."]
SketchSize = Annotated[Count, "Rows of the sketch."]
Rounds = Annotated[Count, "Most rounds of a run."]
Seed = Annotated[int, Limit(">= 0 and < 2^63", lambda seed: 0 <= seed < 2**63), "Seed of splits and methods."]
Wire = Annotated[str, Known(lambda: _names("wire")), "Precision of real numbers in messages: float64 or float32."]
Loss = Annotated[str, Known(lambda: _names("loss")), "Loss by its name."]
StudyLoss = Annotated[str, Known(lambda: (*_names("loss"), "softmax")), "Loss of the study's family."]
LossOrAuto = Annotated[str, Known(lambda: ("auto", *_names("loss"))), "logistic, squared, poisson, or auto by the targets."]
Scaling = Annotated[str, Known(lambda: SCALINGS), "Column scaling: none, maxabs or standardise."]
Missing = Annotated[str, Known(lambda: MISSING_RULES), "Missing values: refuse, drop the rows, or fill in the mean."]
Device = Annotated[str, Known(lambda: _names("device")), "What passes over the rows: cpu or cuda."]
MethodName = Annotated[str, "A method, with its parameters behind a colon."]


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
    loss: LossOrAuto = "auto"
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
        _check_methods(self.methods, self.sketch, self.sketch_size)
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

# The description of a run over sites as it travels, in this order. Its names and values are the wire's: a kind that lacks
# one of them says what stands in its place in `fixed`.
AGREED = (
    "method", "sketch", "sketch_size", "loss", "strength", "intercept", "seed", "wire", "rounds", "sites", "study",
    "agreement",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OverSites(Checked):
    """The settings that every run over sites has; the data stay in the sites' own files."""

    is_settings: ClassVar[bool] = True
    fixed: ClassVar[Mapping[str, Any]]  # what travels in place of settings that a kind does not have
    engine: Annotated[str, "What carries messages to sites."] = ""
    sites: Annotated[tuple[str, ...], "Names of the sites, in order: a site's number is its place here."]
    # Nobody sees all targets of sites to choose a loss by.
    loss: Loss = "logistic"
    strength: Strength = Compare.strength
    intercept: Intercept = Compare.intercept
    sketch: SketchName = Compare.sketch
    sketch_size: SketchSize = Compare.sketch_size
    seed: Seed = Compare.seed
    wire: Wire = Compare.wire
    out: Annotated[str, "Folder of the results, from that of the file."] = "run"
    listen: Annotated[str, "Host and port that sites connect to."] = "127.0.0.1:9092"
    policy: Annotated[Policy, "What to do when a site is away."] = field(default_factory=Policy)
    home: Path = field(default=Path(), compare=False)  # `out` is from here; no setting

    def __post_init__(self) -> None:
        if not self.sites or len(set(self.sites)) < len(self.sites):
            raise ConfigError(f"sites must be names, each once, got {list(self.sites)}")
        for site in self.sites:
            checked_name("a site's name", site)
        if self.policy.quorum > len(self.sites):
            raise ConfigError(f"a quorum of {self.policy.quorum} is more than the sites there are")
        limits = self.policy.largest_rows
        for site in limits if isinstance(limits, dict) else ():
            if site not in self.sites:
                raise ConfigError(f"largest_rows: {unknown('site', site, self.sites)}")
        host, _, port = self.listen.rpartition(":")
        if not (host and port.isdecimal() and int(port) < 2**16):
            raise ConfigError(f"listen must be a host and a port, like 127.0.0.1:9092, got {self.listen!r}")

    @classmethod
    def like(cls, run: OverSites, **settings: Any) -> Self:
        """A run of this kind, with what all kinds have as in another, but for these settings."""
        return cls(**{one.name: getattr(run, one.name) for one in fields(OverSites)} | settings)

    @property
    def folder(self) -> Path:
        """Where the results go."""
        return self.home / self.out

    def agreed(self) -> bytes:
        """The part of the description that both ends must agree on."""
        values = {name: self.fixed[name] if name in self.fixed else getattr(self, name) for name in AGREED}
        return json.dumps(values, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """By which the owner of a site's rows can agree to this run and to no other."""
        return _sha256(self.agreed().decode())

    @property
    def title(self) -> str:
        """What it is, in a word or two for a log: the method, where it has one."""
        return str(getattr(self, "method", "handshake"))

    @property
    def coded_by(self) -> tuple[str, ...]:
        """What sites code their rows by: nothing, or a study, or a study and what was agreed on."""
        return ()

    @property
    def pins(self) -> tuple[str, ...]:
        """Return what an owner may have pinned to agree to this run."""
        return (self.digest,)

    def is_pinned(self, pins: Iterable[str]) -> bool:
        """Whether an owner who wrote these has agreed."""
        return not set(self.pins).isdisjoint(pins)


@dataclass(frozen=True, kw_only=True)
class ColumnRun(OverSites):
    """A method over columns as the sites' files have them: what a coordinator's file describes."""

    fixed: ClassVar[Mapping[str, Any]] = {"study": "", "agreement": ""}
    method: MethodName = "fedns"
    rounds: Rounds = Compare.rounds
    gradient_tol: Annotated[NotNegative | None, "Stop when the gradient norm is at most this."] = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_methods((self.method,), self.sketch, self.sketch_size)

    @classmethod
    def from_toml(cls, path: Path) -> ColumnRun:
        """What a coordinator runs, from its file."""
        values = read_toml(path)
        policy = filled(Policy, f"{path}, [policy]", values.pop("policy", {}))
        return filled(
            cls, str(path), values, known=OVER_SITES, required=("engine", "sites"), policy=policy, home=path.resolve().parent
        )

    def as_dict(self) -> dict[str, Any]:
        """The settings in the order that a report has them."""
        return {name: getattr(self, name) for name in OVER_SITES}


OVER_SITES = (
    "engine", "sites", "method", "sketch", "sketch_size", "loss", "strength", "intercept", "rounds", "seed", "wire", "out",
    "gradient_tol", "listen", "policy",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Handshake(OverSites):
    """The exchange in which sites describe their tables, so that all code them alike: it fits nothing and has no method."""

    fixed: ClassVar[Mapping[str, Any]] = {"method": "fednewton", "rounds": 1, "agreement": ""}
    rounds: ClassVar[int] = 1
    study: Annotated[str, "The canonical text of the study whose tables the sites have."]
    loss: StudyLoss = "logistic"

    @property
    def coded_by(self) -> tuple[str, ...]:
        return (self.study,)

    def is_pinned(self, pins: Iterable[str]) -> bool:
        """Whether an owner has agreed: the study of one of the pins is enough, as there is no method yet."""
        return any(pin == self.digest or pin.partition("+")[0] == _sha256(self.study) for pin in pins)


@dataclass(frozen=True, kw_only=True)
class StudyRun(OverSites):
    """A study's fit over coded rows, once sites have agreed on the coding."""

    fixed: ClassVar[Mapping[str, Any]] = {}
    study: Annotated[str, "The canonical text of the study."]
    agreement: Annotated[str, "What its handshake has agreed on."]
    method: MethodName
    rounds: Rounds
    loss: StudyLoss = "logistic"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_methods((self.method,), self.sketch, self.sketch_size)

    @property
    def study_digest(self) -> str:
        """Names the study that the run belongs to."""
        return _sha256(self.study)

    @property
    def coded_by(self) -> tuple[str, ...]:
        return self.study, self.agreement

    @property
    def pins(self) -> tuple[str, ...]:
        """Return what an owner may have pinned: this run; its study with method and settings; also what was agreed.

        A study alone fixes no method, and whoever chooses that chooses at which coefficients a site is asked.
        """
        with_method = f"{self.study_digest}+{self.method}"
        return self.digest, with_method, f"{with_method}+{_sha256(self.agreement)}"


SiteRun = ColumnRun | Handshake | StudyRun


def read_agreed(data: bytes) -> SiteRun:
    """What a site is told of a run, by somebody it need not believe."""
    what = "the description of the run"
    try:
        values: Any = json.loads(data)
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        raise MessageError(f"{what} is not JSON") from None
    if not isinstance(values, dict) or set(values) != set(AGREED):
        raise MessageError(f"{what} does not have the fields that this version knows")
    kind: type[SiteRun] = StudyRun if values["agreement"] else Handshake if values["study"] else ColumnRun
    for name, value in kind.fixed.items():
        if values.pop(name) != value:
            raise MessageError(
                f"{what}: {name} must be {value!r} without {'a study' if kind is ColumnRun else 'an agreement'}"
            )
    try:
        return filled(kind, what, values)
    except ConfigError as error:
        raise MessageError(str(error)) from None


def _check_methods(methods: tuple[str, ...], sketch: str, sketch_size: int) -> None:
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


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
