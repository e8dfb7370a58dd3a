# make demo | test | lint | types | install
# Needs Python 3.11 or newer; uv makes the installation faster when it is there.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(shell command -v uv 2>/dev/null)
SPECS  := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo test lint types clean

help:
	@echo "make demo      train, attack and compare two policies on the pendulum (about 5 minutes)"
	@echo "make test      lint and run the whole test suite"
	@echo "make lint      ruff's checks and formatting"
	@echo "make types     pyright"
	@echo "make install   only make $(VENV)"
	@echo "make clean     remove caches and built files; runs and $(VENV) stay"

install: $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/rhucrl demo

test: lint
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/pyright

clean:
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are newer than the specifications once an installation went through to its end.
$(VENV)/.installed: $(SPECS) | $(BIN)/python
	$(call install,.)
	@touch $@

$(VENV)/.installed-dev: $(SPECS) | $(BIN)/python
	$(call install,.[dev])
	@touch $(VENV)/.installed $@

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "error: $(PYTHON) was not found: install Python 3.11 or newer, or name it: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: Python 3.11 or newer is needed and $(PYTHON) is `$(PYTHON) -V 2>&1`;" \
	       "name a newer one: make PYTHON=python3.11" >&2; exit 1; }
ifdef UV
	$(UV) venv --quiet --python "`command -v $(PYTHON)`" $(VENV)
else
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "error: $(PYTHON) cannot make virtual environments: install its venv module or uv" >&2; exit 1; }
endif

ifdef UV
install = $(UV) pip install --python $(BIN)/python --compile-bytecode --constraints constraints.txt --editable '$(1)'
else
install = $(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '$(1)'
endif
