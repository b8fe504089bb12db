# Every target sets up what it needs in $(VENV): `make demo` on a machine with Python >= 3.11 and make is enough.
# A target that is set up already starts at once; a change of pyproject.toml or constraints.txt sets it up again.
#
#   PYTHON=python3.12 make test     another interpreter (use another VENV with it, or `make clean` first)
#   make test PYTEST="-k tape -x"   more arguments for pytest
#   make test JOBS=0                in one process (three on two cores: tests wait for processes, and for the disk)

PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,\
	$(if $(shell $(p) -c 'import sys; print(sys.version_info[:2] >= (3, 11) or "")' 2>/dev/null),$(p))))
VENV ?= .venv
PYTEST ?=
JOBS ?= 3

SWEPT := build/operators.jsonl

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -c constraints.txt
say := @printf '\n== %s\n'

# One thread of torch per test process: on few cores, several only get into each other's way. And what Python makes of
# a file is kept, whatever the environment says: workers, and the hundreds of processes that tests start, read it.
ENV := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
TEST := $(ENV) $(BIN)/python -m pytest -n $(JOBS)

.PHONY: help demo test test-full test-versions lint bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo           train a small language model with and without its mistakes, and have both explained"
	@echo "make test           the tests (test-full: with the sweeps too)"
	@echo "make test-versions  smoke tests under the oldest and newest supported torch and jax"
	@echo "make lint           ruff, mypy --strict, import contracts"
	@echo "make bench          the benchmarks, beside the figures of the peers"
	@echo "make clean          remove what these made"

demo: $(VENV)/.demo
	$(say) "The demo"
	@$(BIN)/python examples/demo.py

test: $(VENV)/.dev
	$(say) "Testing"
	@$(ENV) $(BIN)/python -m tests.again -n $(JOBS) $(PYTEST)

# The operators' sweep apart: its entries are shared out one by one, other tests file by file.
test-full: $(VENV)/.dev
	$(say) "Testing with the slow sweeps: four hours on two cores"
	@rm -f $(SWEPT)
	@$(TEST) -m "slow or not slow" --deselect tests/operators/test_op_info.py::test_the_whole_database $(PYTEST)
	@XLAPROF_OUTCOMES=$(SWEPT) $(TEST) -m slow --dist worksteal tests/operators/test_op_info.py $(PYTEST)
	@$(BIN)/python -m tests.mutations --count 1000000 --workers $(JOBS)
	@$(BIN)/python -m tests.runtime.semantics --programs 20000 --workers $(JOBS)
	@$(BIN)/python -m tests.runtime.errors.refusals --calls 20000 --workers $(JOBS)
	@$(BIN)/python -m tests.runtime.errors.refusals --calls 5000 --seed 7000000 --large --workers $(JOBS)
	@$(BIN)/python -m tests.kills --count 1000
	@$(BIN)/python -m tests.kills --count 1000 --busy 6
	@if test -f $(SWEPT); then $(BIN)/python -m tests.operators --from $(SWEPT) docs/operators.md; fi

test-versions:
	@PYTHON="$(PYTHON)" sh tests/versions.sh

lint: $(VENV)/.lint
	$(say) "Linting"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers auto
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/.dev
	$(say) "Benchmarks: minutes on a quiet machine"
	@$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .venv-versions demo-output build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Set-up. Each stamp is a set of installed packages; the larger ones contain the smaller.

$(VENV)/.python:
	@test -n "$(PYTHON)" || { echo "xlaprof needs Python >= 3.11; none was found. Name one: make PYTHON=/path/to/python"; exit 1; }
	$(say) "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { echo "No venv could be made: on Debian and Ubuntu, apt-get install python3-venv"; exit 1; }
	@touch $@

$(VENV)/.torch: constraints.txt | $(VENV)/.python
	$(say) "Installing torch $(shell sed -n s/^torch==//p constraints.txt), the largest download: 0.2 GB, or 2 where it comes with CUDA (README says how not to)"
	@$(PIP) torch
	@touch $@

$(VENV)/.demo: pyproject.toml constraints.txt $(VENV)/.torch
	$(say) "Installing xlaprof and jax"
	@$(PIP) -e '.[runtime]'
	@touch $@

# Of what the tests need Python compiles what they import, when they do: most of it they never do.
$(VENV)/.dev: $(VENV)/.demo
	$(say) "Installing what the tests need (XProf and its relatives too: a minute or two)"
	@$(PIP) --no-compile -e '.[runtime,tensorboard,dev]'
	@touch $@

# mypy reads the types of torch and jax, so linting needs them too.
$(VENV)/.lint: $(VENV)/.demo
	$(say) "Installing ruff, mypy and import-linter"
	@$(PIP) --no-compile -e '.[runtime,dev]'
	@touch $@
