# `make demo` and `make test` need only Python 3.11+ and make: the environment is made on the way.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: env demo docs test test-slow fuzz audit lock lint bench clean

env: .venv/.complete

.venv/.complete: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedkl needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@
	@echo 'for the command fedkl: . .venv/bin/activate'

# Three algorithms on heterogeneous Reacher, side by side; going on where it was stopped.
demo: env
	@if [ -f runs/demo/compare.toml ]; then $(BIN)/fedkl resume runs/demo; \
	else $(BIN)/fedkl compare demo --algorithms fedavg fedkl fedkl-anchored --seeds 1 --jobs 2 --run runs/demo; fi

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The pages as a site, in build/site: with search, and without anything from the network.
docs: env
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

test: lint
	$(BIN)/pytest -n 2

# Minutes to an hour: what `make test` leaves out.
test-slow: env
	$(BIN)/pytest -m slow

# A million inputs to everything that reads files and messages; FUZZ=1000 for a quick look.
FUZZ ?= 1000000
fuzz: env
	FEDKL_FUZZ=$(FUZZ) $(BIN)/pytest -m slow tests/fuzzing

# Known vulnerabilities of the locked versions, and of the lowest that we allow. It asks a service on
# the network, and fails without.
audit: env
	$(PYTHON) -m venv .venv/audit
	.venv/audit/bin/pip install --quiet pip-audit
	grep -oE '"[A-Za-z0-9_-]+(\[[a-z0-9,]+\])?>=[0-9.]+' pyproject.toml | sed -E 's/"//; s/\[.*\]//; s/>=/==/' \
		| sort -u > .venv/audit/lowest.txt
	for set in requirements-lock.txt .venv/audit/lowest.txt; do \
		.venv/audit/bin/pip-audit --requirement $$set --no-deps --disable-pip --strict || exit 1; done

lock: env
	@sed '/^[^#]/,$$d' requirements-lock.txt > requirements-lock.new
	@$(BIN)/pip freeze --exclude-editable | grep -viE '^(torch|triton|nvidia)' >> requirements-lock.new
	@mv requirements-lock.new requirements-lock.txt

# The four that take minutes; all of them: benchmarks/README.md.
bench: env
	$(BIN)/pip install --quiet 'torch==2.13.0' && $(BIN)/pip install --quiet --editable '.[bench]'
	$(BIN)/python benchmarks/local_training.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/tabular.py
	$(BIN)/python benchmarks/figure_eight.py

clean:
	rm -rf .venv build dist src/*.egg-info
