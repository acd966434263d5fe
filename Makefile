# Everything a newcomer or a CI needs. `make help` lists it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help

.PHONY: help demo run test check lint types layers unit integration chaos bench alert-quality schemas samples clean

help: ## Show this help.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("assay-stream needs Python 3.11 or newer, this is %d.%d: set PYTHON=..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@# The reference SDK, for tests against it. It asks for one old version of cryptography exactly: not ours to follow.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps schemapin==1.3.0
	@touch $@

demo: $(VENV)/.ready ## Set everything up, run the main job on real servers, show the result, end.
	$(BIN)/python -m deploy.local.demo

run: $(VENV)/.ready ## The same, and keep Kafka and the worker running for your own server.
	$(BIN)/python -m deploy.local.demo --keep

test: check unit integration ## Set everything up, run the whole test suite.

check: lint types layers ## Style, types and layers.

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready
	$(BIN)/mypy

layers: $(VENV)/.ready
	$(BIN)/lint-imports

unit: $(VENV)/.ready ## Tests that need no broker and no server.
	$(BIN)/python -m pytest -q -n logical --dist worksteal -m "not kafka and not servers"

integration: $(VENV)/.ready ## Tests on real Kafka brokers and real MCP servers, and a short form of chaos.
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "(kafka or servers) and not chaos"
	@# Three brokers: alone on the machine.
	$(BIN)/python -m pytest -q -m chaos

chaos: $(VENV)/.ready ## Inject every fault many times (ASSAY_CHAOS_SEED, ASSAY_CHAOS_ROUNDS), check every promise.
	$(BIN)/python -m tests.chaos

bench: $(VENV)/.ready ## Measure: digests, registry, join, gate, replay, exports, seals (ratios within one run).
	$(BIN)/python -m bench.bench_core
	$(BIN)/python -m bench.bench_registry
	$(BIN)/python -m bench.bench_controls
	$(BIN)/python -m bench.bench_join
	$(BIN)/python -m bench.bench_gate
	$(BIN)/python -m bench.bench_verify
	$(BIN)/python -m bench.bench_replay
	$(BIN)/python -m bench.bench_export
	$(BIN)/python -m bench.bench_seal

alert-quality: $(VENV)/.ready ## Score the alerts on the labelled corpus, beside two baselines.
	$(BIN)/python -m bench.alert_quality.score

schemas: $(VENV)/.ready ## Write schemas/ anew from the models.
	$(BIN)/python -m assay_stream.schemas --write schemas

samples: $(VENV)/.ready ## Write the sample logs of the Sigma rules anew from the engine.
	$(BIN)/python -m deploy.sigma.make_samples --write deploy/sigma/samples

clean: ## Remove what was built and run; keeps the fetched Kafka and servers.
	rm -rf .run dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
