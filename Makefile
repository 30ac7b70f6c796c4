# `make demo` and `make test` need only Python 3.11+ and make: the environment is made on the way.
PYTHON ?= python3
BIN := .venv/bin
# uv, where there is one, installs much faster than pip.
PIP := $(if $(shell command -v uv 2>/dev/null),uv pip install --python $(BIN)/python,$(BIN)/pip install --disable-pip-version-check) --quiet --constraint requirements-lock.txt

.PHONY: env demo docs test test-slow fuzz audit lock lint bench clean

env: .venv/.complete

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedkl needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv

# What the demo needs, in the versions of requirements-lock.txt.
.venv/.demo: pyproject.toml requirements-lock.txt | .venv/bin/python
	@echo 'installing fedkl with JAX and matplotlib into .venv: 750 MB'
	$(PIP) --editable '.[report]'
	@touch $@
	@echo 'for the command fedkl: . .venv/bin/activate'

# What all tests need.
.venv/.complete: pyproject.toml requirements-lock.txt | .venv/bin/python
	@echo 'installing all extras and what the tests need into .venv: 2.6 GB'
	$(PIP) --editable '.[dev]'
	@touch .venv/.demo $@
	@echo 'for the command fedkl: . .venv/bin/activate'

# Three algorithms on heterogeneous Reacher, side by side; going on where it was stopped.
demo: .venv/.demo
	@if [ -f runs/demo/compare.toml ]; then $(BIN)/fedkl resume runs/demo; \
	else $(BIN)/fedkl compare demo --algorithms fedavg fedkl fedkl-anchored --seeds 1 --jobs 2 --run runs/demo; fi

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The pages as a site, in build/site: with search, and without anything from the network.
docs: env
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Each worker begins with one half of the files, so that what a file compiles is compiled once.
test: lint
	@echo 'all tests but the slow ones, on two cores: about 12 minutes, half an hour of processor time the first time'
	$(BIN)/pytest -n 2 --dist worksteal

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

# The versions of this environment, and the same with the checksums of all their files. Two files, because pip
# takes a constraint file with checksums for the wish that everything has some, which an editable install cannot.
lock: env
	@sed '/^[^#]/,$$d' requirements-lock.txt > requirements-lock.new
	@$(BIN)/pip freeze --exclude-editable | grep -viE '^(torch|triton|nvidia)' >> requirements-lock.new
	@mv requirements-lock.new requirements-lock.txt
	@sed '/^[^#]/,$$d' requirements-hashes.txt > requirements-hashes.new
	@sed -n 's/^requires = \["\(setuptools.*\)"\]/\1/p' pyproject.toml | $(BIN)/uv pip compile pyproject.toml - --quiet \
		--python $(BIN)/python --extra dev --constraint requirements-lock.txt --generate-hashes --no-header --no-annotate \
		--no-emit-index-url >> requirements-hashes.new
	@mv requirements-hashes.new requirements-hashes.txt

# The four that take minutes; all of them: benchmarks/README.md.
bench: env
	$(BIN)/pip install --quiet 'torch==2.13.0' && $(BIN)/pip install --quiet --editable '.[bench]'
	$(BIN)/python benchmarks/local_training.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/tabular.py
	$(BIN)/python benchmarks/figure_eight.py

clean:
	rm -rf .venv build dist src/*.egg-info
