# make run     the main job, on a fresh machine too
# make test    lint, types and tests; what was compiled is kept in .pytest_cache for the next time
# make check   the quick half: lint, types, tests that are not slow
# make deep    every case of every test, with every trial of the verifier; make test tries a part of some
# make fuzz    tests on drawn examples, with others and ten times as many
# make docs    the documentation as a site, in build/site
# make clean   as after cloning

PYTHON ?= python3
VENV := .venv
SOURCES := pyproject.toml Makefile install.py
INSTALL := $(VENV)/bin/python install.py
# A worker per core, and one for the time in which others wait for processes that they started; a GPU
# is there for one of them at a time.
WORKERS := $(shell echo $$(($$(nproc 2> /dev/null || echo 2) + 1)))
# The C library gives large memory back, and a network's arrays are asked for again at once: to keep it
# saves most of the system's time. (glibc reads these; others do not.)
KEEPING := MALLOC_MMAP_THRESHOLD_=268435456 MALLOC_TRIM_THRESHOLD_=536870912
PYTEST := $(KEEPING) $(VENV)/bin/pytest --numprocesses $(WORKERS) --maxprocesses 8 --dist loadgroup

# What is installed for tests has no bytecode yet, and most tests start Python: each would compile
# all that it imports again, two seconds for Numba alone.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test check deep fuzz lint types tests quick-tests docs clean

run: $(VENV)/installed
	@$(VENV)/bin/tilewright run
	@printf '\n%s\n%s\n' '. $(VENV)/bin/activate      makes `tilewright` a command of this shell; then' \
	  'tilewright ladder --quick   shows what each step from a for-loop to one fused kernel brings'

# Types are looked at while tests run: mypy has only one thread.
test: lint
	@$(MAKE) --no-print-directory --jobs types tests

check: lint
	@$(MAKE) --no-print-directory --jobs types quick-tests

lint: $(VENV)/installed-for-tests
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/installed-for-tests
	$(VENV)/bin/mypy

tests: $(VENV)/compiled-for-tests
	$(PYTEST)

quick-tests: $(VENV)/compiled-for-tests
	$(PYTEST) -m "not slow"

deep: $(VENV)/installed-for-tests
	$(PYTEST) --deep

fuzz: $(VENV)/installed-for-tests
	$(PYTEST) -m hypothesis --hypothesis-profile fuzz

docs: $(VENV)/installed-for-docs
	$(VENV)/bin/mkdocs build --strict --quiet
	@echo "build/site/index.html; with search: python3 -m http.server --directory build/site"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tilewright needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv --without-pip $(VENV)

$(VENV)/installed: $(VENV)/bin/python $(SOURCES)
	$(INSTALL) -e .
	@touch $@

$(VENV)/installed-for-tests: $(VENV)/bin/python $(SOURCES)
	$(INSTALL) -e '.[test]'
	@touch $@

# By one process: the workers start together, and each would compile all of it. What is
# wrong with a test is left to them to say.
$(VENV)/compiled-for-tests: $(VENV)/installed-for-tests
	@$(VENV)/bin/pytest --collect-only > /dev/null 2>&1 || true
	@touch $@

$(VENV)/installed-for-docs: $(VENV)/bin/python $(SOURCES)
	$(INSTALL) -e '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
