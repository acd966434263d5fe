# Everything a newcomer or a CI needs. `make help` lists it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
# Tests and benches start many processes: none of them should have to compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup kafka debian demo run test check lint types layers size unit native coverage integration gateways chaos chaos-short tiers audit lock confusables sbom release release-dump fuzz bench bench-store bench-peers ratio-gate bench-replay bench-latency bench-curves bench-fleet bench-all bench-docs alert-quality alert-quality-docs train-scorer benign-releases docs samples screenshots clean test-all laws chromium outages browsers peers adversary mixed failover

help: ## Show this help.
	@grep -hE '^[a-z -]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# What installs everything else, in a tenth of pip's time.
UV := .uv/bin/uv pip install --quiet --require-hashes

.uv/.ready: deploy/requirements/uv.lock
	$(PYTHON) -m venv .uv
	.uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

# Two stamps: what is installed changes with the lock, and pyproject.toml changes more often than that.
$(VENV)/.packages: requirements.lock .uv/.ready
	@$(PYTHON) -c 'import sys; sys.exit("assay-stream needs Python 3.11 or newer, this is %d.%d: set PYTHON=..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	@# The lock is complete. Without --no-deps the reference SDK of SchemaPin would be held to its own old pins.
	$(UV) --python $(BIN)/python --no-deps --requirement requirements.lock
	@touch $@

$(VENV)/.ready: $(VENV)/.packages pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Tools that ask about our packages keep out of the environment that they are asked about.
$(VENV)-tools/.ready: deploy/requirements/tools.lock .uv/.ready
	$(PYTHON) -m venv $(VENV)-tools
	$(UV) --python $(VENV)-tools/bin/python --requirement $<
	@touch $@

setup: kafka $(VENV)-tools/.ready ## Install everything for development: packages, Kafka, pre-commit hooks.
	$(VENV)-tools/bin/pre-commit install

# The broker's jars, before several processes that want them fetch them side by side.
kafka: $(VENV)/.ready
	$(BIN)/python -m deploy.local.kafka fetch

demo: $(VENV)/.ready ## Set everything up, show a rug pull on real Kafka and real servers, then stop.
	$(BIN)/python -m deploy.local.demo

run: $(VENV)/.ready ## The same, and keep Kafka, the worker and a console running for your own server.
	$(BIN)/python -m deploy.local.demo --keep

test: $(VENV)/.ready ## Set everything up, run the tests: all but those of a tier.
	$(MAKE) --jobs 2 --output-sync check $(VENV)/.native .schemathesis-venv/.ready kafka
	$(MAKE) unit integration

test-all: test ## The same and every tier, as required for a release.
	$(BIN)/python deploy/tiers.py --all

check: lint types layers size ## Style, types, layers, budgets of lines, generated pages.
	$(BIN)/python docs/generate.py --check

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready
	$(BIN)/mypy

layers: $(VENV)/.ready
	$(BIN)/lint-imports

size: $(VENV)/.ready ## Lines of each package and its budget (deploy/size.toml).
	$(BIN)/python deploy/size.py

# How long each test of the last run took stands in .run/durations. Folders are named since collecting takes its time.
# Some tests wait, for a limit to pass or for a process to start: one process more than there are processors.
UNIT := $(BIN)/python -m pytest -q -n $$($(BIN)/python -c "import os; print(os.cpu_count() + 1)") --dist worksteal tests/acceptance tests/conformance tests/golden tests/property tests/unit

unit: $(VENV)/.native ## Tests that need no broker and no server.
	$(UNIT) --durations=15 --junitxml=.run/durations/unit.xml -m "not kafka and not servers and not tier"

laws: export ASSAY_TEST_EXAMPLES = 100
laws: $(VENV)/.native .schemathesis-venv/.ready ## Each property on four times as many examples as `make test`, different ones each time.
	$(UNIT) --durations=15 -m hypothesis
	$(BIN)/python -m pytest -q tests/integration/test_openapi.py

COVERAGE_FLOOR_PERCENT := 96

coverage: $(VENV)/.ready ## Branch coverage of the tests that need no broker, with a floor; processes that tests start do not count.
	$(UNIT) -m "not kafka and not servers" --cov --cov-report=term --cov-fail-under=$(COVERAGE_FLOOR_PERCENT)

.native-venv/.ready: deploy/requirements/native.lock .uv/.ready
	$(PYTHON) -m venv .native-venv
	$(UV) --python .native-venv/bin/python --requirement $<
	@touch $@

native: $(VENV)/.ready .native-venv/.ready ## Build and install the optional extension of the join (needs Rust); pip uninstall removes it.
	rm -rf dist/native
	.native-venv/bin/maturin build --quiet --release --locked --manifest-path native/Cargo.toml --interpreter $(BIN)/python --out dist/native
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall dist/native/*.whl

# Without a Rust toolchain, or without its crates, the tests of the extension are skipped, and say so.
$(VENV)/.native: $(VENV)/.ready deploy/requirements/native.lock $(wildcard native/*.toml native/Cargo.lock native/src/*.rs)
	@if ! command -v cargo >/dev/null; then echo "no Rust toolchain: the tests go without the extension"; \
	elif cargo fetch --quiet --locked --manifest-path native/Cargo.toml; then $(MAKE) native && touch $@; \
	else echo "its crates cannot be fetched: the tests go without the extension"; fi

.schemathesis-venv/.ready: deploy/requirements/schemathesis.lock .uv/.ready
	$(PYTHON) -m venv .schemathesis-venv
	$(UV) --python .schemathesis-venv/bin/python --requirement $<
	@touch $@

debian: ## Install Prometheus, on Debian, as root. Without it the tests of its rules are skipped.
	apt-get update -qq
	apt-get install -qq --yes --no-install-recommends prometheus

chromium: ## Install Chromium, which `make browsers` drives, on Debian, as root. Without it those tests are skipped.
	command -v chromium && command -v chromedriver || { apt-get update -qq && \
	apt-get install -qq --yes --no-install-recommends chromium chromium-driver; }

# They wait more than they compute, so more processes than cores share these. What is expensive to set up is set up by one of
# them, for a group of tests, which begins before the others.
REAL := $(BIN)/python -m pytest -q -n 3 --dist loadgroup --durations=15

integration: REAL += -n 4
integration: kafka .schemathesis-venv/.ready ## Tests on real Kafka brokers and real MCP servers, but those of a tier.
	$(REAL) --junitxml=.run/durations/integration.xml -m "(kafka or servers) and not tier" tests/integration tests/conformance

# Those of outages are the heaviest: three at once on two cores wait for longer than their limits.
outages: REAL += -n 2
outages browsers peers: $(VENV)/.ready ## Tests of kills and outages; in a browser; with gateways, proxies and servers by others.
	$(REAL) -m "tier(name='$@')" tests/integration

adversary: $(VENV)/.native ## The cost of the worst known lists, and the effect of hostile servers on others, on real Kafka.
	$(UNIT) --durations=15 -m "tier(name='adversary')"
	$(BIN)/python -m pytest -q --durations=15 tests/adversary

GATEWAYS := fastmcp litellm contextforge

gateways: $(VENV)/.ready ## Carry a thousand calls through each gateway that has a feed, and one without Kafka for a minute (GATEWAYS=...).
	$(BIN)/python -m deploy.local.gateways $(GATEWAYS)
	ASSAY_GATEWAY_CALLS=1000 $(BIN)/python -m pytest -q --durations=15 --timeout 1800 tests/integration/test_gateways.py

failover: $(VENV)/.ready ## Lose a broker whose mirror lags, and fail over to it: MirrorMaker 2 between two brokers.
	$(BIN)/python -m pytest -q tests/failover

chaos-short: $(VENV)/.ready ## One round of faults of workers and one of brokers, on three brokers: alone on the machine.
	$(BIN)/python -m pytest -q --durations=15 tests/chaos

tiers: $(VENV)/.ready ## Run the tiers of deploy/tiers.toml whose subject has changed since they last passed.
	$(BIN)/python deploy/tiers.py

chaos: $(VENV)/.ready ## Inject every fault many times (ASSAY_CHAOS_SEED, ASSAY_CHAOS_ROUNDS), check every promise.
	$(BIN)/python -m tests.chaos

MIXED_SEED := 1
MIXED_ROUNDS := 1

mixed: $(VENV)/.ready .uv/.ready ## Mix workers of two releases, restarted in random order, with faults (MIXED_SEED, MIXED_ROUNDS, BEFORE=revision, wheel or version).
	$(BIN)/python -m tests.mixed --seed $(MIXED_SEED) --rounds $(MIXED_ROUNDS) $(if $(BEFORE),--before $(BEFORE))

audit: $(VENV)-tools/.ready ## Check the pinned packages against published advisories.
	$(VENV)-tools/bin/python deploy/supply_chain.py audit

LOCK := .uv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock" --override deploy/requirements/overrides.in

lock: .uv/.ready ## Regenerate every lock; pins that still fit stay (LOCK_OPTIONS=--upgrade).
	$(LOCK) $(LOCK_OPTIONS) pyproject.toml deploy/requirements/dev.in $(foreach extra,cli extmcp otlp worker ingest console parquet msk dev,--extra $(extra)) --output-file requirements.lock
	$(LOCK) $(LOCK_OPTIONS) pyproject.toml --extra worker --extra console --constraint requirements.lock --output-file deploy/requirements/image.lock
	$(LOCK) $(LOCK_OPTIONS) deploy/requirements/uv.in --output-file deploy/requirements/uv.lock
	$(LOCK) $(LOCK_OPTIONS) deploy/requirements/tools.in --output-file deploy/requirements/tools.lock
	$(LOCK) $(LOCK_OPTIONS) deploy/requirements/native.in --output-file deploy/requirements/native.lock
	$(LOCK) $(LOCK_OPTIONS) deploy/requirements/schemathesis.in --output-file deploy/requirements/schemathesis.lock
	$(LOCK) $(LOCK_OPTIONS) bench/requirements.txt --output-file bench/requirements.lock
	$(subst 3.11,3.11.4,$(LOCK)) $(LOCK_OPTIONS) bench/scanner.in --output-file bench/scanner.lock
	$(LOCK) $(LOCK_OPTIONS) bench/training.in --output-file bench/training.lock
	for each in $(GATEWAYS); do $(LOCK) $(LOCK_OPTIONS) --override deploy/gateways/overrides.in deploy/gateways/$$each.in --output-file deploy/gateways/$$each.lock; done

confusables: $(VENV)/.ready ## Generate the table of look-alike characters from Unicode's confusables.txt (FROM=path).
	$(BIN)/python deploy/confusables.py $(FROM)

sbom: $(VENV)-tools/.ready ## Write the pinned packages to dist/sbom.json (CycloneDX).
	$(VENV)-tools/bin/python deploy/supply_chain.py sbom dist/sbom.json

EPOCH = SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct)

release: $(VENV)/.ready $(VENV)-tools/.ready ## Build wheel and sdist twice, compare their bytes, check them and their workflow; with the SBOM in dist/release.
	rm -rf dist/release dist/again
	$(EPOCH) $(BIN)/python -m build --no-isolation --outdir dist/release .
	$(EPOCH) $(BIN)/python -m build --no-isolation --outdir dist/again .
	for each in dist/release/*; do cmp $$each dist/again/$${each##*/} || exit 1; done
	$(VENV)-tools/bin/twine check --strict dist/release/*
	$(VENV)-tools/bin/check-wheel-contents dist/release/*.whl
	$(VENV)-tools/bin/zizmor --offline --quiet .github/workflows
	$(VENV)-tools/bin/hadolint deploy/Dockerfile
	$(VENV)-tools/bin/python deploy/supply_chain.py sbom dist/release/sbom.json

release-dump: $(VENV)/.ready ## Keep all topics of one story as this release writes them, in tests/data/releases/VERSION: later builds restore them.
	$(BIN)/python -m tests.integration.restored tests/data/releases/$$($(BIN)/python -c "import assay_stream; print(assay_stream.__version__)")

fuzz: export ASSAY_TEST_EXAMPLES = 20000
fuzz: $(VENV)/.ready ## Feed decoder and stages with damaged records: each law on 20,000 examples, different ones each time.
	$(BIN)/python -m pytest -q -n logical --timeout 3600 $(addprefix tests/property/test_,fuzz_laws.py decode_laws.py cloudevents_laws.py)

bench: $(VENV)/.ready ## Measure: digests, registry, join, gate, replay, exports, seals (ratios within one run).
	$(BIN)/python -m bench.bench_core
	$(BIN)/python -m bench.bench_search
	$(BIN)/python -m bench.bench_work
	$(BIN)/python -m bench.bench_registry
	$(BIN)/python -m bench.bench_controls
	$(BIN)/python -m bench.bench_join
	if command -v cargo >/dev/null; then $(MAKE) native && $(BIN)/python -m bench.bench_native; fi
	$(BIN)/python -m bench.bench_agents
	$(BIN)/python -m bench.bench_gate
	$(BIN)/python -m bench.bench_tap
	$(BIN)/python -m bench.bench_ingest
	$(BIN)/python -m bench.bench_verify
	$(BIN)/python -m bench.bench_export
	$(BIN)/python -m bench.bench_seal

bench-store: $(VENV)/.ready ## Measure the store: pages over a million records while it fills, and its rate compared with the join's.
	$(BIN)/python -m bench.bench_readmodel
	$(BIN)/python -m bench.bench_store --calls 100000

BENCH_BIN := .bench-venv/bin
RESULTS := .run/bench/results

.bench-venv/.ready: bench/requirements.lock .uv/.ready
	$(PYTHON) -m venv .bench-venv
	$(UV) --python $(BENCH_BIN)/python --requirement $<
	@touch $@

bench-peers: $(VENV)/.ready .bench-venv/.ready ## Compare the join with Kafka Streams, Quix Streams, Faust and raw clients.
	rm -f $(RESULTS)/peers.jsonl
	$(BIN)/python -m bench.bench_peers --json $(RESULTS)/peers.jsonl

ratio-gate: $(VENV)/.native ## Fail if the join, relative to the raw client, is slower than in the previous release (GATE="--keep RELEASE").
	$(BIN)/python -m bench.ratio_gate $(GATE)

bench-replay: $(VENV)/.ready ## Compare replay and verify of files with orjson and SHA-256 over the same lines.
	rm -f $(RESULTS)/replay.jsonl
	$(BIN)/python -m bench.bench_replay --json $(RESULTS)/replay.jsonl

bench-latency: $(VENV)/.ready .bench-venv/.ready ## Measure from a call published to its evidence readable.
	rm -f $(RESULTS)/latency.jsonl
	$(BIN)/python -m bench.bench_latency --json $(RESULTS)/latency.jsonl

bench-curves: $(VENV)/.ready ## Measure what the size of a fleet costs: memory, starting, calls, lists, workers.
	rm -f $(RESULTS)/curves.jsonl
	$(BIN)/python -m bench.bench_state --json $(RESULTS)/curves.jsonl
	$(BIN)/python -m bench.bench_registry --tools 3 --json $(RESULTS)/curves.jsonl
	$(BIN)/python -m bench.bench_registry --json $(RESULTS)/curves.jsonl
	$(BIN)/python -m bench.bench_start --json $(RESULTS)/curves.jsonl
	$(BIN)/python -m bench.bench_workers --json $(RESULTS)/curves.jsonl

bench-fleet: $(VENV)/.ready ## Run a hundredth of a fleet of a million proxies, and compare it with the predicted costs (after bench-curves).
	rm -f $(RESULTS)/fleet.jsonl
	$(BIN)/python -m bench.bench_fleet --json $(RESULTS)/fleet.jsonl

bench-all: bench-peers bench-latency bench-replay bench-curves bench-fleet bench-docs ## All benches that docs/performance.md and docs/capacity.md show, then the tables (about 40 minutes, on a quiet machine).

bench-docs: .bench-venv/.ready ## Put the last results of those into the tables of docs/, and draw docs/performance.png.
	$(BENCH_BIN)/python -m bench.tables $(RESULTS) docs/performance.md docs/capacity.md
	$(BENCH_BIN)/python -m bench.plot $(RESULTS) docs/performance.png

alert-quality: $(VENV)/.ready ## Score the alerts on our own corpus and on texts by others (CORPUS="folder ...").
	$(BIN)/python -m bench.alert_quality.score $(CORPUS)

.scanner-venv/.ready: bench/scanner.lock .uv/.ready
	$(PYTHON) -m venv .scanner-venv
	$(UV) --python .scanner-venv/bin/python --requirement $<
	@touch $@

SCANNERS := cisco-ai-mcp-scanner pyatr sentinel-scan-cli

alert-quality-docs: $(VENV)/.ready .scanner-venv/.ready ## The same, compared with public scanners, into docs/alert-quality.md.
	$(if $(CORPUS),,$(error name the folders with texts by others: CORPUS="folder ..."))
	$(BIN)/python -m bench.alert_quality.score $(CORPUS) $(addprefix --unseen ,$(UNSEEN)) $(foreach each,$(SCANNERS),--scanner "$(each)=.scanner-venv/bin/python bench/alert_quality/adapters.py $(each)") --write docs/alert-quality.md

.training-venv/.ready: requirements.lock bench/training.lock
	$(PYTHON) -m venv .training-venv
	.training-venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --requirement requirements.lock --requirement bench/training.lock
	@touch $@

train-scorer: .training-venv/.ready ## Report the scorer on sources left out; TRAIN=--write writes its weights (CORPUS="folder ...").
	$(if $(CORPUS),,$(error name the folders with texts by others: CORPUS="folder ..."))
	PYTHONPATH=src .training-venv/bin/python -m bench.alert_quality.train $(CORPUS) $(TRAIN)

benign-releases: $(VENV)/.ready $(VENV)-tools/.ready ## Collect releases of real MCP servers into benign/ (needs npm and Linux).
	$(BIN)/python -m bench.alert_quality.collect --uv $(VENV)-tools/bin/uv

docs: $(VENV)/.ready ## Regenerate schemas/ and the generated pages of docs/.
	$(BIN)/python docs/generate.py --write

samples: $(VENV)/.ready ## Regenerate the sample logs of the Sigma rules.
	$(BIN)/python -m deploy.sigma.make_samples --write deploy/sigma/samples

screenshots: $(VENV)/.ready ## Take the pictures of the console in docs/ again, in Chromium.
	ASSAY_SCREENSHOTS=docs $(BIN)/python -m pytest -q tests/integration/test_screenshots.py

clean: ## Remove what was built and run; keeps the fetched Kafka, servers and gateways.
	rm -rf .run dist build .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
