# All a newcomer needs: `make run` starts llmgw on this machine, `make test` tests it.
# Both install what is locked in requirements/ into .venv first, once.

export VENV := .venv
BIN    := $(VENV)/bin
PYTEST ?= $(BIN)/python -m pytest
JOBS   ?= 2

# How the tests are told to use a real PostgreSQL, and which ones.
ON_POSTGRES ?= -m database --database postgres

EXTRAS := install control node router demo tracing bench
LOCK   := $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
          --no-emit-index-url --custom-compile-command "make lock"

.DEFAULT_GOAL := help
.PHONY: help setup check test docs run lock clean

help: ## say what there is
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' Makefile

run: $(VENV)/.installed-demo ## start everything on this machine, with a small model on the CPU
	@exec $(BIN)/python manage.py up --demo $(ARGS)

setup: $(VENV)/.installed-dev ## install everything for developing

test: $(VENV)/.installed-dev ## run all tests, then those that use the database again on PostgreSQL
	$(PYTEST) -n $(JOBS)
	$(PYTEST) -n $(JOBS) $(ON_POSTGRES)

check: $(VENV)/.installed-dev ## lint, types, import contracts, migrations, made docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py makedocs --check

docs: $(VENV)/.installed-demo ## make again the pages of docs/reference that are made from code
	$(BIN)/python manage.py makedocs

lock: $(VENV)/.made ## compile requirements/ from pyproject.toml; UPGRADE=--upgrade for newer versions
	$(LOCK) $(UPGRADE) --extra dev --output-file requirements/dev.txt
	for extra in $(EXTRAS); do \
	    $(LOCK) --extra $$extra --constraint requirements/dev.txt --no-annotate --output-file requirements/$$extra.txt || exit; \
	done

clean: ## remove what was installed and made, but not .state, where a running llmgw keeps its data
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- installing: a stamp tells that it is done, so that the next start asks nobody

# What is for developing holds all that the demo needs, in the same versions.
$(VENV)/.installed-dev: requirements/dev.txt requirements/demo-weights.txt $(VENV)/.made
	@tools/install dev
	@touch $@ $(VENV)/.installed-demo

$(VENV)/.installed-demo: requirements/demo.txt requirements/demo-weights.txt $(VENV)/.made
	@tools/install demo
	@touch $@

$(VENV)/.made: requirements/install.txt
	@tools/make-venv $(VENV)
	@touch $@
