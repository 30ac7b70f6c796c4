# `make demo` and `make test` need only Python 3.11+ and make: the environment is made on the way.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: env demo test test-slow lint bench clean

env: .venv/.complete

.venv/.complete: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedkl needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

# Three algorithms on heterogeneous Reacher, side by side; going on where it was stopped.
demo: env
	@if [ -f runs/demo/compare.toml ]; then $(BIN)/fedkl resume runs/demo; \
	else $(BIN)/fedkl compare demo --algorithms fedavg fedkl fedkl-anchored --seeds 1 --jobs 2 --run runs/demo; fi

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n 2

# Minutes to an hour: what `make test` leaves out.
test-slow: env
	$(BIN)/pytest -m slow

# Without the two that train for long: benchmarks/README.md.
bench: env
	$(BIN)/pip install --quiet 'torch==2.13.0' && $(BIN)/pip install --quiet --editable '.[bench]'
	$(BIN)/python benchmarks/local_training.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/tabular.py
	$(BIN)/python benchmarks/figure_eight.py

clean:
	rm -rf .venv build dist src/*.egg-info
