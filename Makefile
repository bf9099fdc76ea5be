# From a clean clone: `make run` and `make test` set up what is missing. Needs Python 3.11 or newer and make.
.DEFAULT_GOAL := help
.PHONY: help screenshots setup run test test-fast lint format docs fuzz bench bench-clusters chaos test-clusters cluster-up cluster-down console types dev wheel clean

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

CONSOLE := shoal/server/console/index.html
WEB_FILES := $(shell find web/src web/public web/index.html web/vite.config.ts web/tsconfig.json -type f ! -name '*.test.ts*' 2>/dev/null)
NODE_MODULES := web/node_modules/.package-lock.json
HAS_NODE := command -v npm >/dev/null && node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' 2>/dev/null

help:
	@echo "make setup      a virtual environment with everything, in .venv"
	@echo "make run        the quickstart, on this machine"
	@echo "make test       all tests;  make test-fast: those for every save"
	@echo "make lint       format and type checks;  make format: mend what can be mended"
	@echo "make docs       write the reference pages anew from the code"
	@echo "make fuzz       ten times as many mutated files as make test"
	@echo "make bench      start-up, launching and tracking, beside the bare interpreter, torchrun and other trackers"
	@echo "make bench-clusters  what 500 replicas ask of a Kubernetes API server (root)"
	@echo "make chaos      kill everybody at random over 200 experiments, and count what is lost"
	@echo "make cluster-up a real Kubernetes on this machine (root);  make cluster-down: ends it"
	@echo "make test-clusters  only the tests on it; the first time builds it, for a quarter of an hour"
	@echo "make console    build the web console (needs Node 20.19 or newer);  make dev: work on it, live"
	@echo "make types      write the console's types of the API anew"
	@echo "make screenshots  take the pictures of the docs anew, of experiments that run for it"
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
	@if $(HAS_NODE); then $(MAKE) --no-print-directory console || echo "the web console was not built; the command line does without"; \
	else echo "the web console is not built: Node 20.19 or newer is missing; the command line does without"; fi
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
	@$(BIN)/python -m tests.benchmarks.tracking
	@$(BIN)/python -m tests.benchmarks.ingest_load --minutes 10
	@$(BIN)/python -m tests.benchmarks.console

bench-clusters: $(READY)
	@$(BIN)/python -m tests.clusters.kubernetes.scale

chaos: $(READY)
	@$(BIN)/python -m tests.crash.chaos --experiments 200

test-clusters: $(READY)
	@$(BIN)/python tests/tiers.py clusters

cluster-up: $(READY)
	@$(BIN)/python -m tests.clusters.kubernetes.cluster up

cluster-down: $(READY)
	@$(BIN)/python -m tests.clusters.kubernetes.cluster down

console: $(CONSOLE)

$(CONSOLE): $(NODE_MODULES) $(WEB_FILES)
	@echo "building the web console"
	@cd web && npm run --silent build

$(NODE_MODULES): web/package.json web/package-lock.json
	@$(HAS_NODE) || { echo "missing: Node 20.19 or newer with npm, for the web console"; exit 1; }
	@cd web && npm ci --prefer-offline --no-audit --no-fund --loglevel=error
	@touch $@

types: $(READY) $(NODE_MODULES)
	@$(BIN)/python -m shoal.server.document > web/openapi.json
	@cd web && npm run --silent types

dev: $(READY) $(NODE_MODULES)
	@echo "sign in once: $$($(BIN)/shoal open --print 2>/dev/null)"
	@cd web && SHOAL_URL=$$(../$(BIN)/python -c 'from shoal.client import Client; print(Client().access()[0])') npm run dev -- --host 127.0.0.1

screenshots: $(READY)
	@$(BIN)/python -m tests.browser.screenshots

wheel: $(READY) $(CONSOLE)
	@$(BIN)/python -m build --wheel --installer pip --outdir dist . >/dev/null
	@ls dist/*.whl

clean:
	@rm -rf $(VENV) build dist web/node_modules web/openapi.json shoal/server/console .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
