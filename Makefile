# Every target makes the virtual environment that it needs.
.PHONY: test test-all test-gits test-machines storm lint docs docs-check package demo picture bench
.DEFAULT_GOAL := test

BIN := .venv/bin
# Where it is set, each of the thousands of processes that a test starts would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
# A worker without tests takes half of those of another one. If each takes many at once, one has all that are long.
PYTEST := tests/in_memory $(BIN)/pytest --dist worksteal

# The same cases each time. What it leaves out, `make test-all` takes: containers, real agents, browsers, Kubernetes,
# storms, every kill point, and random examples of Hypothesis.
test: lint
	$(PYTEST) --numprocesses=4 -m 'not (container or agents or browser or kubernetes or storm or matrix)'

test-all: lint
	$(PYTEST) --numprocesses=4 --hypothesis-profile=thorough -m 'not (container or storm or kubernetes)'
	$(PYTEST) --numprocesses=2 -m '(container or storm) and not kubernetes'
	tests/in_memory $(BIN)/pytest -m kubernetes

# `make test` in new containers with little more than git and make, as root and as a user; ROWS="..." takes some.
test-machines: .venv/installed
	$(BIN)/python -m tests.machines.run

# The tests that depend on git, on each git that is supported, with the oldest and the newest Python; it needs
# tests/gits/install and a Docker engine. ROWS="2.30/3.11 newest/3.13" takes some rows, SUITES="git" some suites.
test-gits: .venv/installed
	nice $(BIN)/python -m tests.gits.matrix

# Ten minutes of the user's git gc beside twenty sessions, which are ended, killed and swept; `make test-all` has a minute.
# STORM_SECONDS and STORM_SEED choose others, a PATH that begins with .../2.55/bin another git, STORM_REPORT=FILE gets a
# line for each storm.
storm: .venv/installed
	STORM_SECONDS=$${STORM_SECONDS:-600} $(BIN)/pytest tests/crash/test_gc_storm.py

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: .venv/installed
	$(BIN)/mkdocs serve

docs-check: .venv/installed
	$(BIN)/python docs/check_site.py

package: .venv/installed
	.ci/package

demo: .venv/installed
	@docs/demo.sh

# The pictures of README: a recording of the demo, and the web page in a browser.
picture: .venv/installed
	$(BIN)/python docs/record_demo.py
	PICTURE=1 $(BIN)/pytest --quiet tests/interfaces/web/test_picture.py

bench: .venv/installed
	$(BIN)/python benchmarks/run.py

# A python3.X on PATH may be a stub that cannot run, and Debian's python3 comes without venv: each is tried.
# PYTHON=/usr/bin/python3 is tried first.
.venv/installed: pyproject.toml
	@set -eu; \
	find_python() { \
	    for name in $(PYTHON) python3.13 python3.12 python3.11 python3; do \
	        if $$name -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	        then echo $$name; return; fi; \
	    done; \
	    return 1; \
	}; \
	if ! python=$$(find_python) && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv >/dev/null; \
	fi; \
	if ! python=$$(find_python); then \
	    echo 'make: no Python 3.11 or later with the venv module found; on Debian or Ubuntu: apt-get install python3-venv' >&2; \
	    exit 1; \
	fi; \
	echo "making .venv with $$($$python --version)"; \
	$$python -m venv --clear .venv; \
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'; \
	$(BIN)/python -m pip install --quiet --group dev --editable .; \
	touch $@
