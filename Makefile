# make demo   install what is missing, build, train a small model and show that it learned
# make test   build and run every test            (PRESET=asan or tsan for the sanitizers)
# make check  format, layers, limits, words, names, the page of all keys, and the tests of what was built: under a minute after a build
# make parity numbers against transformers (TEMPER_GOLDENS names the folder)
# make mutants  break one thing at a time and see tests fail for each: NAMES="test_rollout 'rotary is removed'"; by hand
# make setup-gpu  headers for kernels that use cuDNN, for those who build with cmake alone: make build brings them itself
# make setup-parquet  Arrow's libraries, to read Parquet files; where the system has none
# make bundle a folder with the program and its libraries that runs where it is copied to (tools/bundle.sh --bench adds the benchmarks)
# make fuzz   look for inputs that crash or hang: TARGET=template, tokenizer_json, jsonl_row, csv, number or reward_answer; RUNS=N or MINUTES=N
# make bench  measured speed of the ops, of training and of tokenizers
# make bench-check  the demo's step compared with the processor's peak; fails below half of it
# make isa    the tests of ops, backends and training as older processors run them (SHORT=1: as CI does)
# make nightly  the proofs that are too slow for every change; CONTRIBUTING.md lists them
# make layouts  every division of small models between 2, 4 and 8 ranks, compared with one rank; hours on few cores
# make torture  kills, power cuts, damage, failing calls, hostile inputs and more (tools/torture), with a table: SCALE=N tries N times as many
SHELL := /bin/bash
PRESET ?= release
BUILD := build/$(PRESET)
TEMPER := build/release/temper
JOBS ?= $(shell nproc)

.PHONY: all setup setup-gpu setup-parquet build release test check parity mutants fuzz bench bench-check isa nightly layouts torture demo bundle clean format

all: build

# What a build needs, and where there is a CUDA compiler what its kernels need, too. A machine without a network builds
# without them, and says so.
setup:
	@tools/setup.sh
	@tools/setup_gpu.sh --if-possible

setup-gpu:
	@tools/setup_gpu.sh

setup-parquet:
	@tools/setup_parquet.sh

build: setup
	@JOBS=$(JOBS) tools/build.sh $(PRESET)

test: build
	@python3 tools/check_layers.py
	@python3 tools/check_limits.py
	@python3 tools/check_words.py
	@cd $(BUILD) && set -o pipefail && OMP_WAIT_POLICY=passive ctest --output-on-failure -j $(JOBS) -LE nightly | \
	  python3 $(CURDIR)/tools/tell_skipped.py .

parity: build
	@$(BUILD)/tests/test_parity

NAMES ?=
mutants: setup
	@JOBS=$(JOBS) python3 tools/mutants.py $(NAMES)

check:
	@! git grep -nE '^(<<<<<<<|>>>>>>>) ' -- . || { echo "conflict markers"; exit 1; }
	@tools/setup.sh --check
	@tools/format.sh --check
	@python3 tools/check_layers.py
	@python3 tools/check_limits.py
	@python3 tools/check_words.py
	@python3 tools/mutants.py --check
	@cmake --preset $(PRESET) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)
	@python3 tools/make_configuration_page.py $(BUILD)/temper --check
	@python3 tools/check_names.py --build $(BUILD)
	@cd $(BUILD) && OMP_WAIT_POLICY=passive ctest --output-on-failure -j $(JOBS) -LE nightly -E 'test_ops|test_parity|test_cli'

format:
	@tools/setup.sh --check
	@tools/format.sh

TARGET ?= template
RUNS ?= -1
MINUTES ?= 0
fuzz:
	@tools/setup.sh --fuzz
	@cmake --preset fuzz >/dev/null
	@cmake --build build/fuzz -j $(JOBS) --target $(TARGET)_fuzz
	@tools/fuzz.sh $(TARGET) $(RUNS) $(MINUTES)

bench: setup
	@JOBS=$(JOBS) tools/build.sh $(PRESET) bench
	@$(BUILD)/bench/temper_bench_train --dtype float32
	@$(BUILD)/bench/temper_bench_train --dtype bfloat16
	@$(BUILD)/bench/temper_bench_ops
	@$(BUILD)/bench/temper_bench_tokenizer

bench-check:
	@$(MAKE) --no-print-directory build PRESET=release
	@python3 bench/cpu/check.py $(TEMPER)

isa: build
	@tools/test_isa.sh $(BUILD) $(if $(SHORT),--short)

layouts: release
	@python3 tools/sweep_layouts.py $(TEMPER) --jobs $(JOBS)

SCALE ?= 1
torture: release
	@tools/torture/run.sh $(TEMPER) $(SCALE)

nightly:
	@JOBS=$(JOBS) tools/nightly.sh

demo: setup
	@JOBS=$(JOBS) tools/build.sh release temper
	@examples/addition/demo.sh $(TEMPER)

# Device code for every GPU that Temper supports, whatever the build folder was configured for.
bundle: setup
	@cmake --preset release "-DTEMPER_CUDA_ARCHITECTURES=80-real;90" >/dev/null
	@cmake --build build/release -j $(JOBS) --target temper
	@tools/bundle.sh
	@tools/test_bundle.sh

clean:
	rm -rf build
