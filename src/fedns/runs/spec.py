"""The description of a run: data, problem, method, seed, wire, stop and policy, as a value, a file or a command.

A comparison, a coordinator and a site read this one value. A comparison's has data, methods and trials; one over sites has
one method, the names of the sites and a policy, and the data stay in the sites' own files. What coordinator and sites must
agree on is the part in `AGREED`: that part travels.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar

from fedns.core.checked import Checked, Count, Fraction, Limit, NotNegative
from fedns.core.errors import ConfigError, MessageError, unknown
from fedns.core.files import checked_name
from fedns.runs.policy import Policy
from fedns.runs.settings import as_toml, filled, located, read_toml

DEFAULT_CLIENTS = 10
DEFAULT_METHODS = ("auto", "fednewton", "fedns", "fedndes")
_STUDY = ("study", "agreement")  # no settings of a file: a study has its own
AGREED = ("method", "sketch", "sketch_size", "loss", "strength", "intercept", "seed", "wire", "rounds", "sites", *_STUDY)
_SHARED = ("sketch", "sketch_size", "loss", "strength", "intercept", "rounds", "seed", "wire", "out")
OVER_SITES = ("engine", "sites", "method", *_SHARED, "gradient_tol", "listen", "policy")  # settings of a coordinator's file


@dataclass(frozen=True)
class Spec(Checked):
    """Every setting of a run, or of runs that are to be compared; creating one checks all that can be without the data.

    - dataset: a name, a path or synthetic:...; none over sites.
    - methods: as text, for example "fedns:step_size=0.5"; over sites one, called `method` in the file.
    - target: column of the targets in a CSV or Parquet file.
    - group: column of the sites.
    - weight: column of sample weights.
    - positive: the label that becomes +1.
    - scale: none, maxabs or standardise.
    - clients: their number; 10 unless given, or the natural sites where split is "group".
    - split: iid, contiguous, sorted, dirichlet:ALPHA, quantity:ALPHA or group.
    - loss: by name, or auto by the targets.
    - strength: of the ridge penalty (s/2) |w|^2, at least 0.
    - intercept: add an unpenalised intercept.
    - sketch: of methods that use one, by name.
    - sketch_size: rows of the sketch.
    - rounds: most rounds of a run.
    - tol: stop when the gap to the pooled optimum is at most this.
    - trials: repetitions with seeds seed, seed + 1, ...
    - seed: of splits and methods.
    - wire: float64 or float32, the precision of real numbers in messages.
    - participation: the part of the clients drawn for each round.
    - threads: all cores unless given.
    - device: cpu or cuda, what passes over the rows; the processor unless given, or the GPU where numba is not installed.
    - out: folder of the results; runs/<dataset> unless given.
    - missing: missing values: refuse, drop the rows, or fill in the mean.
    - engine: what carries messages to sites; none in the simulator.
    - sites: in order: a site's number is its place here.
    - gradient_tol: stop when the gradient norm is at most this.
    - listen: host and port that sites connect to.
    - policy: what to do when a site is away.
    - study: the text of the study that sites code their tables by, where there is one.
    - agreement: what its handshake has agreed on.
    - home: the folder that `out` is from; no setting.
    """

    is_settings: ClassVar[bool] = True
    dataset: str = ""  # a name, a path or synthetic:...; none over sites
    methods: tuple[str, ...] = DEFAULT_METHODS  # over sites one, called `method` in the file
    target: str | None = None  # columns of a CSV or Parquet file
    group: str | None = None
    weight: str | None = None
    positive: str | None = None  # the label that becomes +1
    scale: str = "none"
    clients: Count | None = None  # None: 10, or the natural sites where split is "group"
    split: str = "iid"
    loss: str = "auto"
    strength: NotNegative = 1e-3
    intercept: bool = False
    sketch: str = "srht"
    sketch_size: Count = 32  # fedns.sketches.DEFAULT_SIZE, which numpy comes with
    rounds: Count = 30
    tol: NotNegative | None = 1e-10
    trials: Count = 5
    seed: Annotated[int, Limit(">= 0 and < 2^63", lambda seed: 0 <= seed < 2**63)] = 0
    wire: str = "float64"
    participation: Fraction = 1.0
    threads: Count | None = None  # None: all cores
    device: str | None = None  # None: the processor
    out: str | None = None  # None: runs/<dataset>
    missing: str = "refuse"  # or drop the rows, or fill in the mean
    engine: str = ""  # what carries messages to sites
    sites: tuple[str, ...] = ()  # in order: a site's number is its place here
    gradient_tol: NotNegative | None = None
    listen: str = "127.0.0.1:9092"  # host and port that sites connect to
    policy: Policy = field(default_factory=Policy)
    study: str = ""  # over sites, the canonical text of a study whose tables the sites hold
    agreement: str = ""  # and what the sites have agreed on; none during the handshake
    home: Path = field(default=Path(), compare=False)  # `out` is from here; no setting

    def __post_init__(self) -> None:
        _check_names(self)
        if self.engine or self.sites:
            _check_sites(self)
        elif not self.dataset:
            raise ConfigError('no data set was given: set dataset = "..."')

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Spec:
        """A comparison from plain values, as a file or a command line gives them."""
        return cls._comparison("", values)

    @classmethod
    def from_toml(cls, path: str | Path, overrides: Mapping[str, Any] | None = None) -> Spec:
        """A comparison from a file, with these settings in place of the file's."""
        values = read_toml(path)
        changed = dict(overrides or {})
        # Natural sites bring their own number, so the file's would only stand in the way.
        if changed.get("split") == "group" and "clients" not in changed:
            values.pop("clients", None)
        return cls._comparison(str(path), values | changed)

    @classmethod
    def _comparison(cls, where: str, values: Mapping[str, Any]) -> Spec:
        plain = dict(values)
        if "methods" in plain:
            plain["methods"] = _as_methods(where, plain["methods"])
        if isinstance(number := plain.get("positive"), int | float) and not isinstance(number, bool):
            plain["positive"] = f"{number:g}"  # labels are compared as text or as numbers later
        return filled(cls, where, plain, known=COMPARED)

    @classmethod
    def over_sites(cls, path: Path) -> Spec:
        """What a coordinator runs, from its file."""
        values = read_toml(path)
        policy = filled(Policy, f"{path}, [policy]", values.pop("policy", {}))
        method = values.pop("method", "fedns")
        if not isinstance(method, str):
            raise ConfigError(f"{path}: method must be a text, got {method!r}")
        defaults = {"loss": "logistic", "gradient_tol": 1e-8, "out": "run"}
        given = {"methods": (method,), "policy": policy, "home": path.resolve().parent}
        return filled(cls, str(path), defaults | values, known=OVER_SITES, required=("engine", "sites"), **given)

    @classmethod
    def from_agreed(cls, data: bytes) -> Spec:
        """What a site is told of a run, by somebody it need not believe."""
        what = "the description of the run"
        try:
            values: Any = json.loads(data)
        except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
            raise MessageError(f"{what} is not JSON") from None
        if not isinstance(values, dict) or set(values) != set(AGREED):
            raise MessageError(f"{what} does not have the fields that this version knows")
        values["methods"] = [values.pop("method")]
        try:
            return filled(cls, what, values)
        except ConfigError as error:
            raise MessageError(str(error)) from None

    def agreed(self) -> bytes:
        """The part of a description over sites that both ends must agree on."""
        return json.dumps({name: getattr(self, name) for name in AGREED}, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """By which the owner of a site's rows can agree to this run and to no other."""
        return hashlib.sha256(self.agreed()).hexdigest()

    @property
    def study_digest(self) -> str:
        """Names the study that a run belongs to; empty where there is none."""
        return hashlib.sha256(self.study.encode()).hexdigest() if self.study else ""

    @property
    def pins(self) -> tuple[str, ...]:
        """Return what an owner may have pinned: this run; its study with method and settings; also what was agreed.

        A study alone fixes no method, and whoever chooses that chooses at which coefficients a site is asked.
        """
        if not self.study:
            return (self.digest,)
        with_method = f"{self.study_digest}+{self.method}"
        agreed = hashlib.sha256(self.agreement.encode()).hexdigest()
        return self.digest, with_method, f"{with_method}+{agreed}"

    def is_pinned(self, pins: Iterable[str]) -> bool:
        """Whether an owner who wrote these has agreed. A handshake has no method yet: the study of one of them is enough."""
        if self.study and not self.agreement:
            return any(pin == self.digest or pin.partition("+")[0] == self.study_digest for pin in pins)
        return not set(self.pins).isdisjoint(pins)

    @property
    def method(self) -> str:
        """The one method of a run over sites."""
        (only,) = self.methods
        return only

    @property
    def num_clients(self) -> int | None:
        """The number of clients to split over; None where the data's own sites decide."""
        return self.clients or (None if self.split == "group" else DEFAULT_CLIENTS)

    @property
    def folder(self) -> Path:
        """Where the results go."""
        return self.home / (self.out or Path("runs") / _file_name(self.dataset))

    def as_dict(self) -> dict[str, Any]:
        """The settings in order, those of a comparison or those over sites; tuples as lists."""
        values = {name: getattr(self, name) for name in (OVER_SITES if self.sites else COMPARED)}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}

    def to_toml(self) -> str:
        """A file that `from_toml` reads back to an equal spec; a setting that is not set has no line."""
        return "".join(f"{key} = {as_toml(value)}\n" for key, value in self.as_dict().items() if value is not None)

    def to_command(self) -> str:
        """The command line that runs this comparison."""
        words = ["fedns", "compare", self.dataset, "--methods", ",".join(self.methods)]
        for name in COMPARED[2:]:
            value, default = getattr(self, name), getattr(Spec, name)
            if value is None or (value == default and name not in ("strength", "seed", "rounds", "tol")):
                continue
            flag = "--" + name.replace("_", "-")
            words += [flag] if isinstance(value, bool) else [flag, str(value)]
        return shlex.join(words)


COMPARED = tuple(f.name for f in fields(Spec) if f.name in _SHARED or f.name not in (*OVER_SITES, *_STUDY, "home"))


def _check_names(spec: Spec) -> None:
    # Imported here so that a command line that only shows its help does not load the kernels.
    from fedns.core.messages import WIRE_PRECISIONS
    from fedns.models.losses import LOSSES
    from fedns.numerics.backends.devices import DEVICES
    from fedns.runs.methods import parse_methods
    from fedns.sketches import SKETCHES
    from fedns.studies.tables.missing import MISSING_RULES
    from fedns.studies.tables.scaling import SCALINGS

    choices: dict[str, tuple[str | None, ...]] = {
        "device": (None, *DEVICES),
        "missing": MISSING_RULES,
        "scale": SCALINGS,
        # Nobody sees all targets of sites to choose a loss by; a study has its own, also one that has to know the classes.
        "loss": (*LOSSES, *(["softmax"] if spec.study else [])) if spec.sites else ("auto", *LOSSES),
        "sketch": tuple(SKETCHES),
        "wire": tuple(WIRE_PRECISIONS),
    }
    for name, known in choices.items():
        value = getattr(spec, name)
        if value not in known:
            raise ConfigError(unknown(name, value, [text for text in known if text is not None]))
    parse_methods(spec.methods, spec.sketch, spec.sketch_size)


def _check_sites(spec: Spec) -> None:
    if not spec.sites or len(set(spec.sites)) < len(spec.sites):
        raise ConfigError(f"sites must be names, each once, got {list(spec.sites)}")
    for site in spec.sites:
        checked_name("a site's name", site)
    if len(spec.methods) != 1:
        raise ConfigError(f"a run over sites has one method, got {', '.join(spec.methods)}")
    if spec.policy.quorum > len(spec.sites):
        raise ConfigError(f"a quorum of {spec.policy.quorum} is more than the sites there are")
    limits = spec.policy.largest_rows
    for site in limits if isinstance(limits, dict) else ():
        if site not in spec.sites:
            raise ConfigError(f"largest_rows: {unknown('site', site, spec.sites)}")
    host, _, port = spec.listen.rpartition(":")
    if not (host and port.isdecimal() and int(port) < 2**16):
        raise ConfigError(f"listen must be a host and a port, like 127.0.0.1:9092, got {spec.listen!r}")


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
