"""The three kinds of run over sites: over columns as they are, a handshake, and the fit of a study.

The data stay in the sites' own files. What a coordinator and its sites must agree on is the part in `AGREED`: it travels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from fedns.core.checked import Checked, Count, Known, NotNegative, Positive, filled
from fedns.core.errors import ConfigError, MessageError, unknown
from fedns.core.files import checked_name, read_toml
from fedns.runs.compare import (
    Compare,
    Intercept,
    MethodName,
    Rounds,
    Seed,
    SketchName,
    SketchSize,
    Strength,
    Wire,
    check_methods,
    names_of,
)  # fmt: skip

Loss = Annotated[str, Known(lambda: names_of("loss")), "or squared, poisson"]
StudyLoss = Annotated[str, Known(lambda: (*names_of("loss"), "softmax")), "Loss of the study's family."]
LARGEST_BYTES = 256 * 2**20  # of one message
WORDS = {
    "wait": "every site took part in every round",
    "renormalise": "each round optimised the objective over the sites present in it, weighted among themselves",
    "reuse": "the objective over all sites, with the last curvature and gradient of a site standing in while it was away",
}


@dataclass(frozen=True)
class Policy(Checked):
    """How long to wait for whom, and how the objective is kept when somebody is missing."""

    is_settings: ClassVar[bool] = True
    timeout_seconds: Annotated[Positive, "for one exchange"] = 60.0
    quorum: Annotated[Count, "fewer sites than this, and a round waits"] = 1
    absent: Annotated[
        Literal["wait", "renormalise", "reuse"],
        "or renormalise (over those present), or reuse (an absent site's last curvature)",
    ] = "wait"
    patience_seconds: Annotated[NotNegative, "how long to wait for sites before giving up"] = 600.0
    largest_bytes: int = LARGEST_BYTES
    largest_rows: Count | dict[str, Count] | None = None  # that a site may state, or each by its name; more ends the run
    # How gradients are put together; the others keep one site from turning them at will.
    aggregate: Literal["mean", "median", "trimmed", "geometric"] = "mean"

    def most_rows(self, site: str) -> int | None:
        """How many rows were agreed on for a site; none where nothing was."""
        return self.largest_rows.get(site) if isinstance(self.largest_rows, dict) else self.largest_rows


# The description of a run over sites as it travels, in this order. A kind that lacks one of them says what stands in its
# place in `fixed`, so that a digest which an owner has pinned stays what it is. Nobody pins a handshake: it leaves them out.
AGREED = (
    "method", "sketch", "sketch_size", "loss", "strength", "intercept", "seed", "wire", "rounds", "sites", "study",
    "agreement",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OverSites(Checked):
    """The settings that every run over sites has; the data stay in the sites' own files."""

    is_settings: ClassVar[bool] = True
    travels: ClassVar[tuple[str, ...]] = AGREED
    fixed: ClassVar[Mapping[str, Any]] = {}  # what travels in place of settings that a kind does not have
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
        values = {name: self.fixed[name] if name in self.fixed else getattr(self, name) for name in self.travels}
        return json.dumps(values, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """By which the owner of a site's rows can agree to this run and to no other."""
        return _sha256(self.agreed().decode())

    @property
    def title(self) -> str:
        """What it is, in a word for a log: the method, where it has one."""
        return "handshake"

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
class MethodRun(OverSites):
    """A run of a method, round by round."""

    method: MethodName
    rounds: Rounds

    def __post_init__(self) -> None:
        super().__post_init__()
        check_methods((self.method,), self.sketch, self.sketch_size)

    @property
    def title(self) -> str:
        return self.method


@dataclass(frozen=True, kw_only=True)
class ColumnRun(MethodRun):
    """A method over columns as the sites' files have them: what a coordinator's file describes."""

    fixed: ClassVar[Mapping[str, Any]] = {"study": "", "agreement": ""}
    method: MethodName = "fedns"
    rounds: Rounds = Compare.rounds
    gradient_tol: Annotated[NotNegative | None, "Stop when the gradient norm is at most this."] = 1e-8

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

    travels: ClassVar[tuple[str, ...]] = tuple(name for name in AGREED if name not in ("method", "rounds", "agreement"))
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
class StudyRun(MethodRun):
    """A study's fit over coded rows, once sites have agreed on the coding."""

    study: Annotated[str, "The canonical text of the study."]
    agreement: Annotated[str, "What its handshake has agreed on."]
    loss: StudyLoss = "logistic"

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
    known = isinstance(values, dict) and set(values) in (set(AGREED), set(Handshake.travels))
    if not known:
        raise MessageError(f"{what} does not have the fields that this version knows")
    kind: type[SiteRun] = Handshake if "agreement" not in values else StudyRun if values["agreement"] else ColumnRun
    for name, value in kind.fixed.items():
        if values.pop(name) != value:
            raise MessageError(f"{what}: {name} must be {value!r} without an agreement")
    try:
        return filled(kind, what, values)
    except ConfigError as error:
        raise MessageError(str(error)) from None


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
