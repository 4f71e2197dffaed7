# `make help` lists the targets. Set-up runs when something it depends on has changed, and says nothing otherwise.
SHELL := /bin/bash
BIN := .venv/bin
# Tests of servers mostly wait, so three workers share a core; those of the core compute. A worker has a control plane of
# its own and takes 1.5 GB: TEST_WORKERS=2 make test is slower, and content with less.
CORES := $(shell nproc)
TEST_WORKERS ?= $(shell expr 3 '*' $(CORES))
ARGS ?=
TRACES ?=
# Containers often set it; every test and process would then compile all of its sources again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install install-dev demo demo-real five-minutes test-core test test-long check bench backtest-docs docs docs-reference docs-pictures format lock sbom audit image image-lock release manifests clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: ## .venv with cruise in it, dependencies pinned by hash, the packer's kernels compiled
	@scripts/install.sh runtime
	@scripts/compile_kernels.sh

install-dev: ## the same, with what tests and checks need
	@scripts/install.sh dev

demo: ## the whole controller on an embedded cluster; DEMO_SECONDS=60 ends it by itself
	@scripts/install.sh demo
	@$(BIN)/cruise demo $(ARGS)

demo-real: install-dev ## the same on a real Kubernetes control plane, to look at with kubectl; needs Go
	@tests/setup/10-prometheus.sh
	@$(BIN)/python -m tests.demo_real

five-minutes: install-dev ## the quick start on a fresh clone and a real control plane, timed step by step; needs Go
	@tests/setup/10-prometheus.sh
	@tests/setup/20-control-plane.sh
	@tests/setup/40-helm.sh
	@$(BIN)/python -m tests.five_minutes $(ARGS)

test-core: install-dev ## the tests that need no server, in two minutes; ARGS="tests/domain -x" narrows
	@tests/setup/30-kernels.sh
	@$(BIN)/python -m pytest -n $(CORES) --tier core $(ARGS)

test: install-dev ## set-up, then all that a change must pass, in twenty minutes
	@scripts/test_setup.sh
	@$(BIN)/python -m pytest -n $(TEST_WORKERS) $(ARGS)

test-long: install-dev ## the same with every seed, ten times the examples, and endurance
	@scripts/test_setup.sh
	@$(BIN)/python -m pytest -n $(TEST_WORKERS) --tier long --timeout 3600 $(ARGS)

check: install-dev ## format, lint, types, import contracts, and the links of the documentation
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/ruff check --quiet
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python scripts/site.py build/docs

bench: install-dev ## the benchmarks as one table; ARGS="--list", ARGS="--only NAME"
	@$(BIN)/python -m benchmarks $(ARGS)

backtest-docs: install ## docs/backtest-results.md from TRACES="DIR…"; ARGS="--half report" narrows
	@scripts/backtest_docs.sh $(ARGS) $(TRACES)

docs: install-dev ## build/docs/site, the documentation; links that lead nowhere are errors
	@$(BIN)/python scripts/site.py build/docs
	@echo "build/docs/site: python3 -m http.server --directory build/docs/site"

docs-reference: install-dev ## docs/reference and the chart's schema of settings, from the code
	@$(BIN)/python -m scripts.reference

docs-pictures: install-dev ## docs/pictures, from cruise's own decisions on docs/example and the backtest's results
	@$(BIN)/python -m scripts.pictures

format: install-dev ## rewrite the sources as `make check` wants them
	@$(BIN)/ruff check --fix --quiet
	@$(BIN)/ruff format --quiet

lock: ## choose versions again from pyproject.toml and pin them with hashes; ARGS="--upgrade" for the newest
	@scripts/lock.sh $(ARGS)

sbom: ## dist/cruise.cdx.json, CycloneDX 1.6: what cruise consists of, with versions, hashes, licences
	@scripts/install.sh runtime
	@tool=$$(scripts/tool.sh supply) && "$$tool/bin/python" scripts/sbom.py .venv/lib/python3*/site-packages dist/cruise.cdx.json

audit: ## known vulnerabilities of every pinned version; ends with 3 where the database does not tell
	@tool=$$(scripts/tool.sh supply) && "$$tool/bin/python" scripts/audit.py "$$tool/bin/pip-audit" \
	    requirements-lock.txt requirements-build.txt requirements.txt requirements-cloud.txt requirements-dask.txt requirements-dev.txt \
	    requirements-supply.txt

image: ## dist/image, an OCI layout without a shell, with its bill of materials and provenance; needs Debian 12
	@scripts/image.sh make

image-lock: ## pin what Debian has now of the image's packages, with hashes
	@scripts/image.sh pin

release: install-dev ## dist/release: wheel, sdist, chart, image, bills of materials, provenance, checksums
	@scripts/release.sh

manifests: install-dev ## the files of deploy/ from the chart in deploy/chart; needs Go, which builds Helm once
	@tests/setup/40-helm.sh
	@$(BIN)/python -m tests.deploy.rendering

clean: ## remove .venv and every cache inside the checkout
	@rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
