"""Settings as a value, a file and a command."""

import shlex
from pathlib import Path

import pytest

from fedns.cli import app as cli
from fedns.cli import comparison
from fedns.core.errors import ConfigError
from fedns.runs.compare import Compare

CONFIGS = Path(__file__).parents[2] / "configs"
FULL = Compare(
    "a dir/da\"ta'.csv", ("fedns:sketch=sjlt;sketch_size=8", "gd"), "y", "site", "w", "3", "maxabs", 7, "dirichlet:0.5",
    "squared", 0.1234567890123, True, "gaussian", 9, 11, 1e-7, 2, 3, "float32", 0.25, 1, "cuda", "x/y", "mean",
)  # fmt: skip


def test_toml_round_trip(tmp_path):
    assert all(getattr(FULL, name) != getattr(Compare, name) for name in vars(FULL))
    for spec in (FULL, Compare("digits"), Compare("digits", split="group", positive="a\tb\x7f\\")):
        path = tmp_path / "spec.toml"
        path.write_text(spec.to_toml(), encoding="utf-8")
        assert Compare.from_toml(path) == spec


@pytest.mark.parametrize("spec", [FULL, Compare("digits"), Compare("digits", split="group")])
def test_the_command_gives_the_same_spec(spec, monkeypatch):
    asked = []
    monkeypatch.setattr(comparison, "run_comparison", lambda spec, quiet, cluster, overwrite: asked.append(spec))
    with pytest.raises(SystemExit) as end:
        cli.main(shlex.split(spec.to_command())[1:])
    assert end.value.code in (None, 0)
    assert asked == [spec]


@pytest.mark.parametrize("name", ["phishing", "breast_cancer"])
def test_configs_are_valid(name):
    assert Compare.from_toml(CONFIGS / f"{name}.toml").folder == Path("runs") / name


def test_flags_override_the_file(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text('dataset = "digits"\nclients = 4\nmethods = ["fedns"]\n', encoding="utf-8")
    changed = Compare.from_toml(path, {"methods": "fedns,gd", "rounds": 3, "strength": 1})
    assert (changed.methods, changed.rounds, changed.clients, changed.strength) == (("fedns", "gd"), 3, 4, 1.0)
    assert Compare.from_toml(path, {"split": "group"}).num_clients is None


def test_what_is_left_open():
    assert Compare("digits").num_clients == 10
    assert Compare("digits").folder == Path("runs/digits")
    assert Compare("a/b/rows.csv").folder == Path("runs/rows")
    assert Compare("synthetic:rows=10,columns=2").folder == Path("runs/synthetic-rows-10-columns-2")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("client = 3", "unknown setting 'client': did you mean clients"),
        ("clients = 0", "clients must be a whole number >= 1 or None, got 0"),
        ("clients = 2.0", "clients must be a whole number, got 2.0"),
        ("clients = true", "clients must be a whole number, got True"),
        ("clients = [2, 4]", "clients must be a whole number, got [2, 4]"),
        ('strength = "big"', "strength must be a number, got 'big'"),
        ("strength = -1", "strength must be a finite number >= 0, got -1"),
        ("strength = nan", "strength must be a finite number >= 0, got nan"),
        ("sketch_size = 0", "sketch_size must be a whole number >= 1, got 0"),
        ("participation = 0", "participation must be a finite number > 0 and <= 1, got 0"),
        ('scale = "max"', "unknown scale 'max': did you mean maxabs"),
        ('loss = "logit"', "unknown loss 'logit': did you mean logistic"),
        ('wire = "float16"', "unknown wire 'float16'"),
        ('sketch = "fft"', "unknown sketch 'fft'"),
        ("methods = 3", "methods must be a list of texts, got 3"),
        ("methods = []", "no method was given"),
        ('methods = ["fednss"]', "unknown method 'fednss'"),
        ("=", "is not TOML"),
    ],
)
def test_bad_settings_are_one_sentence(tmp_path, line, sentence):
    path = tmp_path / "spec.toml"
    path.write_text(f'dataset = "digits"\n{line}\n', encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        Compare.from_toml(path)
    assert sentence in str(caught.value)
    assert "spec.toml" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        Compare.from_toml(tmp_path / "none.toml")
    (tmp_path / "empty.toml").touch()
    with pytest.raises(ConfigError, match="no data set was given"):
        Compare.from_toml(tmp_path / "empty.toml")
