# The two commands a new user types: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test test-core test-gpu chaos format web site release clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      train and evaluate a small run, and write its report (sets up .venv)"
	@echo "make test      lint, types and tests (sets up .venv)"
	@echo "make test-core the tests of the core, which another Python can run"
	@echo "make test-gpu  the tests that need a CUDA GPU"
	@echo "make chaos     kill, starve, damage and mislead runs for an hour, and count what did not hold"
	@echo "make format    let ruff rewrite the layout of the code"
	@echo "make web       rebuild the replay's script for the browser (needs npm)"
	@echo "make site      build the site from docs/ into site/"
	@echo "make release   wheel and sdist of the tagged version into dist/"
	@echo "make clean     remove .venv and caches"

# The stamp is newer than both files exactly when the environment was built from them.
$(VENV)/.installed: EXTRAS := dev
$(VENV)/.demo: EXTRAS := mujoco,video
$(VENV)/.installed $(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

# Without the tools of `make test`, unless they are there.
demo: $(if $(wildcard $(VENV)/.installed),$(VENV)/.installed,$(VENV)/.demo)
	$(BIN)/echelon train CartpoleSwingup --device cpu --env-steps 1600000 --out runs/demo
	$(BIN)/echelon evaluate runs/demo --device cpu
	$(BIN)/echelon record runs/demo --format html
	$(BIN)/echelon record runs/demo --policy leader --format gif || true  # where OpenGL is, and it says so where not
	$(BIN)/echelon report runs/demo

# worksteal keeps most tests of a file in one process, with the report or browser that they share.
test: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/pytest -rs -n auto --dist worksteal

# On another Python: make test-core PYTHON=python3.13 VENV=.venv-3.13
CORE := algorithms config console diagnostics learning models rollout
test-core: $(VENV)/.demo
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt pytest pytest-xdist hypothesis
	$(BIN)/pytest -rs -n auto --dist worksteal $(addprefix tests/,$(CORE))

test-gpu: $(VENV)/.installed
	$(BIN)/pytest -rs -m cuda

chaos: $(VENV)/.installed
	PYTHONPATH=tests $(BIN)/python -m chaos

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

WEB := src/echelon/viewing/web

web:
	cd $(WEB) && npm ci --no-fund --no-audit && npm run build

site: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

release: $(VENV)/.installed
	$(BIN)/python release.py

clean:
	rm -rf $(VENV) $(WEB)/node_modules .pytest_cache .ruff_cache .hypothesis
