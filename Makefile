# make demo | test | test-pythons | lint | types | install
# Needs Python 3.11 or newer; uv makes the installation faster when it is there.

PYTHON  ?= python3
PYTHONS ?= python3.11 python3.12 python3.13
VENV    := .venv
BIN     := $(VENV)/bin
UV      := $(shell command -v uv 2>/dev/null)
SPECS   := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo test test-pythons portable lint types clean

help:
	@echo "make demo           train, attack and compare two policies on the pendulum (about 5 minutes)"
	@echo "make test           lint, check types and run the whole test suite"
	@echo "make test-pythons   try the built wheel on each of PYTHONS; fails if none is newer than 3.11, but for ALLOW_ONE_PYTHON=1"
	@echo "make lint           ruff's checks and formatting"
	@echo "make types          pyright"
	@echo "make install        only make $(VENV)"
	@echo "make clean          remove caches and built files; runs and $(VENV) stay"

install: $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/rhucrl demo

test: lint types
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m 'not portable'

# Each Python has its own environment in .venvs; those that are not there are skipped.
test-pythons:
	@newer=$${ALLOW_ONE_PYTHON:-}; for name in $(PYTHONS); do \
	  python=$$($(call interpreter,$$name)); \
	  if [ -z "$$python" ]; then echo "$$name was not found: skipped"; continue; fi; \
	  version=`"$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'`; \
	  echo "Python $$version: $$python"; \
	  $(MAKE) --no-print-directory portable PYTHON="$$python" VENV=.venvs/$$version || exit 1; \
	  [ $$version = 3.11 ] || newer=$$version; \
	done; \
	[ -n "$$newer" ] || { echo "error: no Python newer than 3.11 was tested, of: $(PYTHONS);" \
	  "install one, or name it in PYTHONS, or set ALLOW_ONE_PYTHON=1" >&2; exit 1; }

# The tests see the installed wheel: they run in the environment's folder, where the sources cannot be imported.
portable: $(BIN)/python
	@rm -rf $(VENV)/wheel
	$(wheel)
	$(call install-wheel,`echo $(VENV)/wheel/*.whl`)
	cd $(VENV) && env -u PYTHONPATH bin/python -m pytest -q -n 2 -m portable -c $(CURDIR)/pyproject.toml $(CURDIR)/tests/test_portable.py

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
	@python=$$($(call interpreter,$(PYTHON))); \
	[ -n "$$python" ] || { \
	  echo "error: $(PYTHON) was not found: install Python 3.11 or newer, or name it: make PYTHON=/path/to/python" >&2; exit 1; }; \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: Python 3.11 or newer is needed and $(PYTHON) is `"$$python" -V 2>&1`;" \
	       "name a newer one: make PYTHON=python3.11" >&2; exit 1; }; \
	$(make-venv)

# The path of the Python with a name, also where pyenv has its version but does not use it in this folder.
interpreter = for version in "$$PYENV_VERSION" `pyenv whence $(1) 2>/dev/null`; do \
  PYENV_VERSION=$$version $(1) -c 'import sys; print(sys.executable)' 2>/dev/null && break; done

ifdef UV
make-venv     = $(UV) venv --quiet --python "$$python" $(VENV)
install       = $(UV) pip install --python $(BIN)/python --compile-bytecode --constraints constraints.txt --editable '$(1)'
wheel         = $(UV) build --quiet --wheel --python $(BIN)/python --out-dir $(VENV)/wheel
install-wheel = $(UV) pip install --python $(BIN)/python --quiet --reinstall-package rhucrl "$(1)[test,video]"
else
PIP           = $(BIN)/python -m pip --disable-pip-version-check --quiet
make-venv     = "$$python" -m venv $(VENV) || { rm -rf $(VENV); \
  echo "error: $(PYTHON) cannot make virtual environments: install its venv module or uv" >&2; exit 1; }
install       = $(PIP) install --constraint constraints.txt --editable '$(1)'
wheel         = $(PIP) wheel --no-deps --wheel-dir $(VENV)/wheel .
install-wheel = $(PIP) install "$(1)[test,video]" && $(PIP) install --force-reinstall --no-deps "$(1)"
endif
