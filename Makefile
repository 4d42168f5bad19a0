# Every target works on a fresh clone: each one installs what it needs first, and that costs nothing
# when it is there. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON_BIN := .venv/bin/python
PYTEST := $(PYTHON_BIN) -m pytest

.PHONY: help install demo test test-quick check lint types layers locks drift unit go-check format lock docs bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/.stamp: requirements-dev.lock pyproject.toml scripts/install.sh
	@bash scripts/install.sh

install: .venv/.stamp ## what a minimal Debian lacks, and .venv with the commands
	@bash scripts/install.sh --if-needed

demo: install ## real cluster, real Triton, one InferenceSLO: watch it being repaired (KEEP=1 leaves it up)
	@$(PYTHON_BIN) -m demo $(if $(KEEP),--keep) $(DEMO_ARGS)

test: install ## everything: check, integration, Triton, end to end, and the demo's goals
	@$(PYTHON_BIN) scripts/run_tests.py

test-quick: install ## the same without the demo's goal run
	@$(PYTHON_BIN) scripts/run_tests.py --quick

check: install ## style, types, layers, generated files, unit tests: under 90 seconds
	@$(PYTHON_BIN) scripts/run_checks.py

format: install ## let ruff put style right
	@$(PYTHON_BIN) -m ruff check --fix-only --quiet . && $(PYTHON_BIN) -m ruff format --quiet .

lock: ## pin the dependencies of pyproject.toml anew
	@bash scripts/lock.sh

docs: install ## write the generated files: the CRD and docs/api.md
	@$(PYTHON_BIN) scripts/generate.py

bench: install ## decision cost, queries per tick, cost of the load generator
	@$(PYTHON_BIN) -m benchmarks

clean: ## stop what the dev cluster left running; remove build/ and .venv
	@if [[ -x $(PYTHON_BIN) && -d build/devcluster ]]; then $(PYTHON_BIN) -m devcluster down || true; fi
	@rm -rf build dist .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
