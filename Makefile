# Each target does its own set-up: it makes .venv when there is none, installs the versions pinned in
# constraints.txt, and then runs. A second call installs nothing. `make help` lists the targets.

PYTHON ?= python3
VENV ?= .venv
# More arguments for pip. Where pip would pick a CUDA build of torch and the CPU build is enough:
#   make test PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
PIP_ARGS ?=
# A folder with wheels of torch_scatter and torch_sparse, which the index has as sources only. Where it is
# not there, or does not fit this Python or this torch, both compile.
WHEELS ?= ../shared/wheels
# Arguments for the program that `demo`, `bench`, `fuzz`, `torture` or `test-quick` runs.
ARGS ?=

# One worker more than there are cores, because tests wait for processes that they start; not more than help.
WORKERS := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
PARALLEL := -n $(WORKERS) --maxprocesses 8 --dist worksteal

# The tests with a mark: pytest need not import the files without it.
marked = -m $(1) $(sort $(shell grep --recursive --files-with-matches --include='*.py' 'mark\.$(1)\b' tests))

# The tests start some sixty processes: without kept bytecode each of them, and each worker, compiles all again.
export PYTHONDONTWRITEBYTECODE :=

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:  # two runs of pip would get in each other's way
.DEFAULT_GOAL := help

BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
PINS := pyproject.toml constraints.txt
# No build isolation: the build, too, then uses the pinned setuptools, and the `sparse` extra finds torch.
INSTALL := $(BIN)/python -m pip install --quiet --no-build-isolation $(PIP_ARGS) -c constraints.txt
# What is installed for tests is compiled to bytecode when it is first imported; most of it never is.
NOT_COMPILED := --no-compile

# On a new machine the kernels compile for two minutes of one core each: meanwhile what only the tests need is
# installed.
## test         Tests but those of benchmarks
CHOSEN := -m "not bench"
WARM_UP := $(BIN)/python -m pyg_incremental warm-up --dtype
.PHONY: test
test: $(STAMPS)/package
	$(WARM_UP) float32 & one=$$!; $(WARM_UP) float64 & two=$$!; \
	    $(MAKE) --no-print-directory $(STAMPS)/test && wait $$one && wait $$two
	$(BIN)/python -m pytest $(PARALLEL) $(CHOSEN)

# What coverage counts is a part of the tests: those that
# are not marked `unmeasured` and not in tests/unmeasured.txt, and of the arguments of each test the first two
# and each 16th (`leave_unmeasured` in tests/conftest.py). All tests together run more lines than it says. Without
# the JIT no others are run here; `make test-nojit` runs them all.
## coverage     The same, kernels once more without the JIT, and coverage by a part of the tests >= 95%
.PHONY: coverage
coverage: $(STAMPS)/test
	$(BIN)/coverage erase
	$(WARM_UP) float32 & one=$$!; $(WARM_UP) float64 & two=$$!; \
	    NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest $(call marked,kernels) && wait $$one && wait $$two
	$(BIN)/coverage run -m pytest $(PARALLEL) $(CHOSEN)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

## test-all     Coverage by all tests, with every walk of every case (half an hour) and the benchmarks: see tests/signatures.py
.PHONY: test-all
test-all: CHOSEN := --all-cases
test-all: coverage

## mutants      Small mistakes in the package, and which test notices each (15 minutes); ARGS="--only ghosts"
.PHONY: mutants
mutants: $(STAMPS)/test
	$(BIN)/python -m tests.mutants $(ARGS)

## test-quick   Tests that are not slow, without coverage; ARGS="tests/unit -x"
.PHONY: test-quick
test-quick: $(STAMPS)/test
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow" $(ARGS)

## test-nojit   Kernel tests as plain Python, with Numba's JIT off
.PHONY: test-nojit
test-nojit: $(STAMPS)/test
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest $(call marked,kernels)

## test-sparse  Tests for SparseTensor input; without WHEELS=folder the first call compiles for 10 to 15 minutes
.PHONY: test-sparse
test-sparse: $(STAMPS)/sparse
	$(BIN)/python -c "import torch_sparse"
	$(BIN)/python -m pytest $(PARALLEL) $(call marked,sparse)

## fuzz         Random models and calls along random deltas, held against the original; ARGS="--minutes 60"
.PHONY: fuzz
fuzz: $(STAMPS)/test
	$(BIN)/python -m tests.fuzz $(ARGS)
	$(BIN)/python -m tests.fuzz --calls 1000

## torture      Faults injected everywhere: exceptions, kills, damaged files, forks; ARGS="--minutes 30"
.PHONY: torture
torture: $(STAMPS)/test
	$(BIN)/python -m tests.torture $(ARGS)

## simulate     A stream through crashes, torn files, repeats and disorder, seed by seed; ARGS="--seeds 1000"
.PHONY: simulate
simulate: $(STAMPS)/test
	$(BIN)/python -m tests.stream.simulate $(ARGS)

## demo         The quickstart; ARGS="--model gat --dataset Cora"
# A full pass of PyG takes and frees gigabytes. A virtual machine may need seconds for each of them, so what was
# freed is kept, for whoever asks next (read by glibc).
.PHONY: demo
demo: export MALLOC_MMAP_THRESHOLD_ := 17179869184
demo: export MALLOC_TRIM_THRESHOLD_ := 17179869184
demo: $(STAMPS)/examples
	@echo "the demo (half a minute): a model's graph changes, and its output keeps up; loading torch and PyG"
	@$(BIN)/python examples/quickstart.py $(ARGS)

## demo-quick   A short form of it
.PHONY: demo-quick
demo-quick: $(STAMPS)/examples
	@echo "the demo in short; loading torch and PyG"
	@$(BIN)/python examples/quickstart.py --quick $(ARGS)

## stream       A stream beside bare updates, from event to alert, after a kill (two minutes); ARGS="--help"
.PHONY: stream
stream: $(STAMPS)/bench
	$(BIN)/python -m benchmarks stream $(ARGS)

## bench        The package and its peers side by side (15 minutes); ARGS="--help" tells what else
.PHONY: bench
bench: $(STAMPS)/bench
	$(BIN)/python -m benchmarks $(ARGS)

## bench-quick  The same on a tiny graph beside the tests of all commands of the benchmarks: that they run
.PHONY: bench-quick
bench-quick: $(STAMPS)/test
	$(BIN)/python -m benchmarks peers --quick $(ARGS) & \
	    $(BIN)/python -m pytest $(PARALLEL) $(call marked,bench) && wait $$!

## lint         ruff: format and rules; import-linter: rooms lead one way
.PHONY: lint
lint: $(STAMPS)/test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

## format       Let ruff format the files and mend what it can
.PHONY: format
format: $(STAMPS)/test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

## types        mypy, strict
.PHONY: types
types: $(STAMPS)/test
	$(BIN)/mypy

## docs         The documentation, warnings as errors, and its search: docs/build/html/index.html
.PHONY: docs
docs: $(STAMPS)/docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -b html docs/source docs/build/html
	$(BIN)/python docs/searched.py docs/build/html

## docs-table   Write the table of layers into its page, from what the package says of them
.PHONY: docs-table
docs-table: $(STAMPS)/test
	$(BIN)/python docs/layer_table.py

## docs-outputs Write under each block of code in the documents what it prints; ARGS="README.md": one page
.PHONY: docs-outputs
docs-outputs: $(STAMPS)/test
	$(BIN)/python docs/outputs.py $(ARGS)

## clean        Remove what runs leave behind; keeps .venv
.PHONY: clean
clean:
	rm -rf build dist docs/build htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path "./$(VENV)/*" -prune -exec rm -rf {} +

## clean-all    Remove .venv as well
.PHONY: clean-all
clean-all: clean
	rm -rf "$(VENV)" *.egg-info

.PHONY: help
help:
	@sed -n 's/^## /  make /p' Makefile

# One stamp per set of extras says what is installed. A changed pin makes every stamp old.
$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("the pinned versions need Python 3.11 or newer, this is " + sys.version.split()[0] + "; name another one with PYTHON=...")'
	$(PYTHON) -m venv "$(VENV)"
	mkdir -p $(@D)
	touch $@

$(STAMPS)/build: $(STAMPS)/venv $(PINS)
	$(INSTALL) setuptools wheel
	touch $@

$(STAMPS)/package: $(STAMPS)/build
	@echo "installing the package (about a minute)"
	$(INSTALL) $(NOT_COMPILED) -e .
	touch $@

$(STAMPS)/examples: $(STAMPS)/build
	@echo "installing the package and what the examples need (about a minute)"
	$(INSTALL) -e ".[examples]"
	touch $@

$(STAMPS)/bench: $(STAMPS)/build
	@echo "installing the package and what the benchmarks need (about a minute)"
	$(INSTALL) -e ".[bench,partition]"
	touch $@

# The tests run the examples and the benchmarks.
$(STAMPS)/test: $(STAMPS)/package
	@echo "installing what the tests and the examples need (about a minute)"
	$(INSTALL) $(NOT_COMPILED) -e ".[test,examples,bench,mpi,partition]"
	touch $(STAMPS)/examples $(STAMPS)/bench $@

$(STAMPS)/docs: $(STAMPS)/build
	$(INSTALL) $(NOT_COMPILED) -e ".[docs]"
	touch $@

# Wheels that install and still fail to load were built against another torch; they give way to the sources.
# torch_sparse compiles with ninja, two files at a time. Do not ask setuptools for a parallel build as
# well: its extensions share one ninja file and would overwrite it for each other.
SPARSE := torch_scatter torch_sparse
FROM_WHEELS := $(INSTALL) --find-links "$(WHEELS)" $(SPARSE:%=--only-binary %) -e ".[sparse]"
$(STAMPS)/sparse: $(STAMPS)/test
	@if [ -d "$(WHEELS)" ] && $(FROM_WHEELS) && $(BIN)/python -c "import torch_sparse"; then \
	    echo "torch_scatter and torch_sparse: the wheels of $(WHEELS)"; \
	else \
	    echo "compiling torch_scatter and torch_sparse, unless pip kept their wheels from before (10 to 15 minutes)"; \
	    $(BIN)/python -m pip uninstall --quiet --yes $(SPARSE); \
	    $(INSTALL) ninja; \
	    MAX_JOBS=$${MAX_JOBS:-2} PATH="$(abspath $(BIN)):$$PATH" $(INSTALL) -e ".[sparse]"; \
	fi
	touch $@
