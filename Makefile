# make run    the main job, on a fresh machine too
# make test   lint, types and tests

PYTHON ?= python3
VENV := .venv
SOURCES := pyproject.toml Makefile

.PHONY: run test clean

run: $(VENV)/installed
	@$(VENV)/bin/tilewright run

test: $(VENV)/installed-for-tests
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/pytest

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tilewright needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python $(SOURCES)
	$(VENV)/bin/pip install -qq --disable-pip-version-check -e .
	@touch $@

$(VENV)/installed-for-tests: $(VENV)/bin/python $(SOURCES)
	$(VENV)/bin/pip install -qq --disable-pip-version-check -e '.[test]'
	@touch $@

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
