# `make demo` and `make test` set everything up themselves; all they need is python3 (3.11 or newer) and make.
# another interpreter: make test PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.stamp
# present only while a set-up is under way, so a broken-off one is noticed and redone from nothing
BEGUN := $(VENV)/.stamp-begun
# present once all that tests import was imported, and so compiled
WARM := $(VENV)/.stamp-warm
# where Python may not keep what it compiled, hundreds of processes would compile all of it again
unexport PYTHONDONTWRITEBYTECODE
# a machine with a GPU often brings its own torch: use our set-up where it exists, what is installed otherwise
GPU_PYTHON = $(if $(wildcard $(READY)),$(BIN)/python,$(PYTHON))

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check gpu sanitize bench bench-gpu faults kills gallery docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(READY)  ## train a translator on the phrasebook, ask it, draw what it attends to (about two minutes)
	@$(BIN)/regard demo

test: $(READY)  ## everything CI runs: check, then the tests
	@$(MAKE) --no-print-directory --jobs=2 check $(WARM)
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal --durations=10

test-all: check  ## the same with all of its large tables, of which `make test` takes a part (half an hour)
	@REGARD_ALL=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal --durations=10

check: $(READY)  ## lint, format, types, import direction, spelling
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "format: run $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@out=$$($(BIN)/lint-imports 2>&1) || { printf '%s\n' "$$out"; exit 1; }
	@$(BIN)/codespell
	@echo "check: all good"

gpu:  ## the tests that need a CUDA device
	@PYTHONPATH=src $(GPU_PYTHON) -m pytest tests -m gpu

sanitize:  ## compute-sanitizer on small calls: bad reads and writes, then races (needs a CUDA device)
	@for tool in memcheck racecheck; do PYTHONPATH=src PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool $$tool \
	    --error-exitcode 1 $(GPU_PYTHON) -m tests.incidents.sanitize || exit 1; done

bench: $(READY)  ## measure speed and memory
	@$(BIN)/python -m benchmarks
	@$(BIN)/python -m benchmarks.translation

bench-gpu:  ## the same on a CUDA device: kernels, calls, first calls and whole models, beside torch's own
	@PYTHONPATH=src$${PYTHONPATH:+:$$PYTHONPATH} $(GPU_PYTHON) -m benchmarks.gpu
	@PYTHONPATH=src$${PYTHONPATH:+:$$PYTHONPATH} $(GPU_PYTHON) -m benchmarks.gpu.look

faults: $(READY)  ## plant faults in a copy and count how many the tests catch (an hour or two on two cores)
	@$(BIN)/python -m tools.seed_faults

kills: $(READY)  ## stop small runs 50 times and more, at random and inside saves, and compare every bit (minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -m tools.kill_runs

gallery: $(READY)  ## draw docs/gallery.md: formula, call and heat map of every term
	@$(BIN)/python -m tools.gallery

docs: $(READY)  ## run every example in README, docs and docstrings
	@$(BIN)/python -m pytest -q tests/packaging/test_docs.py

clean:  ## remove .venv, caches and build output; runs/ stays
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "regard needs python 3.11 or newer; '$(PYTHON)' is older or missing. Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "setting up $(VENV) (a few minutes the first time)"
	@if [ -e $(BEGUN) ]; then rm -rf $(VENV); fi
	@mkdir -p $(VENV) && touch $(BEGUN)
	@$(PYTHON) -m venv $(VENV)
	@# older ones take twice as long
	@$(BIN)/python -m pip install -qq --disable-pip-version-check 'pip>=25'
	@$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@rm -f $(BEGUN) && touch $@

# beside the checks, which leave a core idle; what cannot be collected is told by the tests themselves
$(WARM): $(READY)
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1; touch $@
