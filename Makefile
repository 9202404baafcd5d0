# Every target works from a fresh clone: the first one makes .venv and installs what it needs.
#   make demo    kway fit digits: compare families, keep the best, write model.kway and report.html (a minute)
#   make test    the tests (six minutes)    make slow    the long ones
#   make test-cluster  the tests on a Ray cluster of three local nodes (some minutes)
#   make check   lint, format, types, import rules, sizes, public names and docstrings   make bench   timings beside other libraries
#   make test-gpu   what runs on a GPU, on one where there is one, else by torch on the processor (two minutes)
#   make attack  N=100000 altered model files, a tenth as many fits on hostile input and indexes (SEED=0): counts, 1 where
#                one crashes, fails raw or answers NaN (two hours a million files, ten minutes 10,000 fits);
#                N / 100 killed saves, N / 1000 forks
#   make mutate  MOST=40 changed operators of each trusted module (SEED=0): those that no test notices
#   make docs    the site, into site/: every link checked, every code block run (two minutes)
#   make clean   remove what the other targets left (not .venv)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help demo test test-gpu test-cluster slow attack mutate check format bench docs clean

help:
	@sed -n 's/^#   //p' Makefile

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit("kway needs Python 3.11 or later, $(PYTHON) is " + sys.version.split()[0] \
		+ "; name another: make PYTHON=python3.11 ..." if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.made
	@echo "installing kway and what its tests need into $(VENV)"
	@$(PIP) install -e '.[dev]'
	@touch $@

$(VENV)/.bench: pyproject.toml $(VENV)/.dev
	@echo "installing the libraries to compare with into $(VENV)"
	@$(PIP) install -e '.[dev,bench]'
	@touch $@

$(VENV)/.gpu: pyproject.toml $(VENV)/.dev
	@echo "installing torch into $(VENV)"
	@$(PIP) install -e '.[dev,gpu]' torch==2.13.0 triton
	@touch $@

$(VENV)/.docs: pyproject.toml $(VENV)/.dev
	@echo "installing what builds the site into $(VENV)"
	@$(PIP) install -e '.[dev,docs]'
	@touch $@

demo: $(VENV)/.dev
	$(BIN)/kway fit digits --out model.kway

# a file of tests at a time in each of a few processes
test: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile

$(VENV)/.cluster: pyproject.toml $(VENV)/.dev
	@echo "installing Ray into $(VENV)"
	@$(PIP) install -e '.[dev,cluster]'
	@touch $@

test-cluster: $(VENV)/.cluster
	$(BIN)/python -m pytest -q -s -m cluster tests/cluster

slow: $(VENV)/.dev
	$(BIN)/python -m pytest -q -m slow

test-gpu: $(VENV)/.gpu
	$(BIN)/python -m pytest -q tests/gpu

N ?= 100000
SEED ?= 0
attack: $(VENV)/.dev
	cd tests/attack && $(abspath $(BIN))/python -m file_attack $(N) --seed $(SEED) --bounds --keep $(abspath build)/attack
	cd tests/attack && $(abspath $(BIN))/python hostile_input.py $$(( $(N) / 10 )) --seed $(SEED)
	cd tests/attack && $(abspath $(BIN))/python exact_search.py $$(( $(N) / 10 )) --first $$(( $(SEED) * $(N) ))
	cd tests/attack && $(abspath $(BIN))/python killed_saves.py $$(( $(N) / 100 )) --seed $(SEED)
	cd tests/attack && $(abspath $(BIN))/python forked_answers.py $$(( $(N) / 1000 ))

MOST ?= 40
mutate: $(VENV)/.dev
	$(BIN)/python tools/mutate.py --most $(MOST) --seed $(SEED)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_structure.py
	$(BIN)/python tools/check_docstrings.py

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

# NO_MKDOCS_2_WARNING: the theme advertises its successor on every build
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python -m pytest -q -m pages tests/docs

clean:
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	rm -f model.kway report.html
	find src tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +
