# One command sets up and runs: `make run`. Everything stays in this folder: .venv and .rl-post.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
ARGS ?=
# Two files at a time, each with one thread, for two cores; those with services first, which are the long ones.
SIDE_BY_SIDE := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

export RL_POST_HOME ?= $(CURDIR)/.rl-post
export PREFECT_HOME ?= $(RL_POST_HOME)/prefect
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export HF_HOME ?= $(RL_POST_HOME)/huggingface
export RAY_USAGE_STATS_ENABLED := 0
export DO_NOT_TRACK := 1
# Uncompiled, SGLang's imports alone take a minute in each of its processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run test test-unit test-slow check up down image-cuda image-rocm lock clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

setup: $(READY) ## Fill .venv from the pinned list (once)

$(READY): requirements/cpu.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' || { echo "rl-post needs Python 3.11 or 3.12: make PYTHON=/path/to/python"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/uv.txt
	$(BIN)/uv pip install --python $(BIN)/python --no-deps --compile-bytecode --quiet -r requirements/cpu.txt
	$(BIN)/uv pip install --python $(BIN)/python --no-deps --no-build-isolation --quiet -e .
	mkdir -p $(PREFECT_HOME)
	touch $@

run: $(READY) ## Train with configs/r1.yaml; ARGS="smollm2 steps=5" for another recipe or other settings
	$(BIN)/rl-post run $(ARGS)

test: $(READY) ## All tests but the slow ones; starts real Ray, SGLang, Prefect and MLflow
	$(SIDE_BY_SIDE) -m "not slow" --durations=12 $(ARGS)

test-unit: $(READY) ## The tests that need no service
	$(SIDE_BY_SIDE) -m "not slow" tests/unit $(ARGS)

test-slow: $(READY) ## The tests that train for minutes
	$(BIN)/python -m pytest -m slow $(ARGS)

check: $(READY) ## Format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

up: $(READY) ## Start Prefect server, MLflow server, work pool and worker; deploy the recipes
	$(BIN)/rl-post up

down: $(READY) ## End exactly what `make up` started
	$(BIN)/rl-post down

image-cuda: ## Build the image for NVIDIA clusters (docs/clusters.md)
	docker build -f docker/Dockerfile.cuda -t rl-post:0.1.0-cuda $(ARGS) .

image-rocm: ## Build the image for AMD clusters; ARGS="--build-arg SGLANG_IMAGE=..." for another generation of GPUs
	docker build -f docker/Dockerfile.rocm -t rl-post:0.1.0-rocm $(ARGS) .

lock: $(READY) ## Pin requirements/cpu.txt again after a change of pyproject.toml
	$(BIN)/uv pip compile --python $(BIN)/python --quiet --universal --python-version 3.11 --extra cpu --extra dev --excludes requirements/cpu-excludes.txt --no-emit-index-url --no-header --no-annotate pyproject.toml -o requirements/cpu.txt

clean: ## Remove .venv; runs and models in .rl-post stay
	rm -rf .venv
