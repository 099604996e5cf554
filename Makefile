PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RACE := .race

.PHONY: demo demo-federation test test-quick test-nightly check dist constraints bench bench-growth race format docs clean

demo: $(STAMP)
	$(BIN)/fedns compare digits --methods auto,fednewton,fedns,fedndes --clients 20 --split iid --scale maxabs --sketch srht --sketch-size 8 --strength 1e-3 --rounds 30 --tol 1e-10 --trials 5 --seed 0 --out runs/demo --overwrite

demo-federation: $(STAMP)
	$(BIN)/fedns demo-federation --engine flower --sites 3 --overwrite
	$(BIN)/fedns demo-federation --engine nvflare --sites 3 --overwrite

# Three processes on two cores: tests of sites spend much of their time waiting.
test: $(STAMP)
	$(BIN)/python tests/browser/install_browser.py
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

# What every edit deserves: no processes, no downloaded data. The first run after a change of a kernel compiles it.
QUICK := tests/test_architecture.py tests/core tests/numerics tests/sketches tests/models tests/runs tests/lab/data tests/methods tests/federation/site tests/studies/tables

test-quick: $(STAMP)
	FEDNS_DATA= $(BIN)/python -m pytest --numprocesses 2 --dist loadfile -m "not slow and not nightly" $(QUICK)

test-nightly: $(STAMP)
	$(BIN)/python -m pytest -m nightly

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/fednl.py
	$(BIN)/python benchmarks/wide.py

# How time and memory of every method grow; fails above stated exponents. Some minutes.
bench-growth: $(STAMP)
	$(BIN)/python benchmarks/growth.py

# Against other people's programs, in an environment of its own. What cannot be installed is shown as missing.
# Another program that reads LIBSVM text: make race PEERS="--peer 'NAME=PROGRAM {data} {model}'"
race: $(RACE)/.installed
	$(RACE)/bin/python -m benchmarks.race.race $(PEERS)

$(RACE)/.installed: pyproject.toml benchmarks/race/peers.txt
	$(PYTHON) -m venv $(RACE)
	$(RACE)/bin/python -m pip install --quiet --editable '.[plots]'
	while read -r peer; do $(RACE)/bin/python -m pip install --quiet "$$peer" < /dev/null || echo "$$peer cannot be installed"; done < benchmarks/race/peers.txt
	touch $@

# What is installed elsewhere: a wheel, the source, and the versions of everything else.
dist: $(STAMP)
	$(BIN)/python -m hatchling build
	cp constraints.txt dist/

# CuPy is installed where there is a GPU alone: its line is kept.
constraints: $(STAMP)
	kept=$$(grep '^cupy-' constraints.txt); \
	{ $(BIN)/python -m pip list --format=freeze --exclude-editable | grep -v -e '^fedns==' -e '^pip==' -e '^setuptools==' -e '^cupy-'; echo "$$kept"; } \
	| $(BIN)/python -c 'import sys; sys.stdout.writelines(sorted(sys.stdin, key=str.lower))' > constraints.txt

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(RACE) runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(STAMP)

# The site, offline: warnings are errors, and the gallery's code is run.
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	$(BIN)/fedns methods --markdown > docs/methods.md
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"
