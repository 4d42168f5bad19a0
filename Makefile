# Every target works on a fresh clone: it installs what it needs first, which costs nothing when it is
# there. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
export PYTHON

PY := .venv/bin/python

.PHONY: help install demo test test-quick check format generate lock bench clean distclean

help: ## this list
	@printf 'InferenceSLO: keep GPU inference inside its latency targets with the fewest GPUs\n\nusage: make TARGET\n\n'
	@while IFS= read -r line; do \
	  if [[ $$line =~ ^([a-z-]+):.*'## '(.*)$$ ]]; then printf '  %-11s %s\n' "$${BASH_REMATCH[1]}" "$${BASH_REMATCH[2]}"; fi; \
	done < Makefile
	@printf '\nEvery target works on a fresh clone. More: README.md, docs/development.md\n'

install: ## add what a minimal Debian lacks, make .venv with the commands (all others do this first)
	@bash scripts/install.sh

demo: install ## a real cluster, a real Triton, one InferenceSLO: watch the repair (KEEP=1: leave it up)
	@$(PY) -m demo $(if $(filter-out 0,$(KEEP)),--keep) $(DEMO_ARGS)

test: install ## everything, with the demo's goals; without root what needs none
	@$(PY) -m scripts.run_tests $(TEST_ARGS)

test-quick: install ## the same without the tests of the loop and the goal run
	@$(PY) -m scripts.run_tests --quick $(TEST_ARGS)

check: install ## style, types, layers, generated files, unit tests: under 90 seconds
	@$(PY) scripts/run_checks.py

format: install ## let ruff put the style right
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format --quiet .

generate: install ## write what is generated from the code: the CRD and docs/api.md
	@$(PY) scripts/generate.py

lock: ## pin the dependencies of pyproject.toml anew (UPGRADE=1: newer versions)
	@bash scripts/lock.sh $(if $(UPGRADE),--upgrade)

bench: install ## cost of a decision, queries per tick, cost of the load generator
	@$(PY) -m benchmarks $(BENCH_ARGS)

clean: ## stop the development clusters of this checkout; remove build/ and the tools' caches
	@for record in build/*/cluster.json; do \
	  if [[ -f $$record ]]; then \
	    bash scripts/install.sh; \
	    $(PY) -m devcluster down --state "$${record%/cluster.json}"; \
	  fi; \
	done
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache
	@find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## the same, and .venv; what was built once stays in ~/.cache/inferenceslo
	@rm -rf .venv
