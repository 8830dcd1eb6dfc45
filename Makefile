# make demo | test | test-all | docs | wheel | bench | bench-gpu | lint | clean | help. Needs Python >= 3.11 with pip and venv; everything else goes into .venv.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check --quiet --no-input
# few of the 14,000 files are ever imported: compiling all of them is half of an installation
INSTALL := $(PIP) install --no-compile -c constraints.txt
TESTS  ?=
BENCH  ?=
WORKERS ?= 2
# Tests start many processes: each would compile all of plmctl anew without its bytecode.
# In their own order: xdist would run the files with the fewest tests, which are the longest, last.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all docs wheel bench bench-gpu lint clean

help: ## show this list
	@echo "usage: make <target> [PYTHON=python3.12]"
	@sed -n 's/^\([a-z-]*\):.*## /  \1	/p' Makefile

demo: $(VENV)/.base ## install, then the whole main job on an embedded corpus (5 minutes on 2 cores); report: demo/report.md
	$(PY) -m plmctl.cli.demo demo

# types are checked beside the tests, and what is wrong with them stands behind those
test: $(VENV)/.test ## install, check style, run the tests, check types (TESTS="tests/text -k unigram" for some tests, WORKERS=8 for more at a time)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy > $(VENV)/.types 2>&1 & types=$$!; \
	$(PYTEST) -m "not slow and not gpu" $(TESTS); tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/.types; exit $$((tests || types))

test-all: lint ## the same with the slow tests, which take hours: every recipe resumed, all stored numbers
	$(PYTEST) -m "not gpu" $(TESTS)

lint: $(VENV)/.test ## style and types only
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

docs: $(VENV)/.docs ## write the tables and pictures of docs/, and build the pages into site/
	$(PY) docs/tables.py
	$(PY) docs/pictures.py
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# the wheel is made from the sdist, so that this one lacks nothing; it runs where no checkout is near
wheel: $(VENV)/.wheel ## write sdist and wheel into dist/, check both, and run the wheel in an empty environment and folder
	rm -rf dist $(VENV)/empty
	$(PY) -m hatchling build -t sdist
	$(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist dist/*.tar.gz
	$(PY) -m twine check --strict dist/*
	$(PY) -m venv $(VENV)/empty
	$(VENV)/empty/bin/python -m pip --quiet --no-input install --no-compile -c constraints.txt dist/*.whl
	plmctl=$(CURDIR)/$(VENV)/empty/bin/plmctl; cd "$$(mktemp -d)" && $$plmctl --version && \
	$$plmctl docs start/install | grep -q constraints.txt && \
	$$plmctl pretrain size=tiny train.steps=2 run.dir=run && $$plmctl report run

bench: $(VENV)/.bench ## speed beside transformers and tokenizers (long; see benchmarks/)
	$(PY) benchmarks/pretrain_cpu.py
	$(PY) benchmarks/tokenize_text.py

bench-gpu: $(VENV)/.bench ## speed on one GPU, at most 12 minutes, the dearest first; results: bench-gpu.jsonl, bench-gpu.md (BENCH="--corpus text.txt")
	$(PY) benchmarks/pretrain_gpu.py $(BENCH)

clean: ## remove the environment, caches and the demo's output (runs/ stays)
	rm -rf $(VENV) build dist demo site .bench-gpu .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for what running needs, one for what testing needs; each is remade when the metadata or a pinned version changes.
# The build tools come first and no build is isolated, so that their versions are pinned too (some dependencies are sdists).
$(VENV)/.base: pyproject.toml constraints.txt | $(VENV)/.created
	@echo "installing plmctl and torch into $(VENV) (a minute or two) ..."
	$(INSTALL) hatchling editables setuptools
	$(INSTALL) --no-build-isolation -e .
	@touch $@

$(VENV)/.test: $(VENV)/.base
	$(INSTALL) setuptools-scm
	$(INSTALL) --no-build-isolation -e ".[test]"
	@touch $@

$(VENV)/.docs: $(VENV)/.base
	$(INSTALL) --no-build-isolation -e ".[docs]"
	@touch $@

$(VENV)/.wheel: $(VENV)/.base
	$(INSTALL) twine
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	$(INSTALL) --no-build-isolation -e ".[bench]"
	@touch $@

$(VENV)/.created:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null || \
	  { echo "plmctl needs Python 3.11 or newer, and '$(PYTHON)' is: $$($(PYTHON) --version 2>&1 | head -n 1)"; \
	    echo "  fix: make $(MAKECMDGOALS) PYTHON=python3.12   (any interpreter from 3.11 on)"; exit 1; }
	@$(PYTHON) -c "import venv, ensurepip" 2>/dev/null || \
	  { echo "'$(PYTHON)' lacks venv"; echo "  fix: install it (Debian, Ubuntu: apt install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@
