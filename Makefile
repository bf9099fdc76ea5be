# From a clean clone: `make run` and `make test` set up what is missing. Needs Python 3.11 or newer and make.
.DEFAULT_GOAL := help
.PHONY: help setup run test test-fast lint format docs fuzz bench chaos console wheel clean

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

help:
	@echo "make setup      a virtual environment with everything, in .venv"
	@echo "make run        the quickstart, on this machine"
	@echo "make test       all tests;  make test-fast: those for every save"
	@echo "make lint       format and type checks;  make format: mend what can be mended"
	@echo "make docs       write the reference pages anew from the code"
	@echo "make fuzz       ten times as many mutated files as make test"
	@echo "make bench      start-up, planning and launching times, beside the bare interpreter and torchrun"
	@echo "make chaos      kill everybody at random over 200 experiments, and count what is lost"
	@echo "make console    build the web console"
	@echo "make wheel      build the package"
	@echo "make clean      remove what was built"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "missing: Python 3.11 or newer (python3.11 or python3)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "missing: Python 3.11 or newer; $(PYTHON) is older (set PYTHON=...)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "missing: Python's venv module (on Debian: apt-get install python3-venv)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

run: $(READY)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/shoal run examples/quickstart
	@echo "the console: $$($(BIN)/shoal open --print)"

test: $(READY)
	@$(BIN)/python tests/tiers.py

test-fast: $(READY)
	@$(BIN)/python tests/tiers.py --fast

lint: $(READY)
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary

format: $(READY)
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix --quiet .

docs: $(READY)
	@$(BIN)/python docs/generate.py

fuzz: $(READY)
	@SHOAL_EXAMPLES=20000 $(BIN)/python -m pytest -q tests/property

bench: $(READY)
	@$(BIN)/python -m tests.benchmarks.start_up
	@$(BIN)/python -m tests.benchmarks.launching
	@$(BIN)/python -m tests.benchmarks.load

chaos: $(READY)
	@$(BIN)/python -m tests.crash.chaos --experiments 200

console:
	@echo "there is no web console yet"

wheel: $(READY)
	@$(BIN)/python -m build --wheel --installer pip --outdir dist . >/dev/null
	@ls dist/*.whl

clean:
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
