SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Settings, as in: make test PKG=./stacks/... ARGS='-run TestLoad'
GO       ?= go
PKG      ?= ./...
ARGS     ?=
TIMEOUT  ?= 60m
# Packages that are tested at the same time. Suites wait for the cluster most of
# the time, so there are more of them than processors.
PARALLEL ?= 4
FUZZTIME ?= 30s
TARGET   ?=
KILLS    ?= 300
# Filter of make mutate.
ONLY     ?=
SEED     ?=
PUSHES   ?= 20
# Real node: 1 needs one; try skips where none can be made; empty skips.
NODE     ?=
# 1: make test keeps all processors busy and pauses the tests at random.
LOAD     ?=
# Of make bench; what is empty is as the scenario has it.
SCENARIO ?=
N        ?=
RUNS     ?= 5
PEER     ?=
PROFILE  ?=
RESUME   ?=
OUT      ?= docs/benchmarks
# Image that deploy installs; it has no default.
IMG      ?=
# Of make image: empty is the controller's.
IMAGE    ?=
# Version that the programs call themselves; empty: that of the commit.
VERSION  ?=
# The kubectl on PATH, else the one that the tests use.
KUBECTL  ?= $(or $(shell command -v kubectl),$(shell $(GO) run ./e2e/tools/cmd/build kubectl | cut -f2))

# A module of its own, as a user's would be: ./... ends before it.
LIBRARY := examples/library
WHOLE    = $(filter ./...,$(PKG))

BIN := $(CURDIR)/bin
# Tools are pinned by modules of their own and kept by version.
CONTROLLER_GEN_VERSION := $(shell awk '$$1 == "sigs.k8s.io/controller-tools" {print $$2}' internal/tools/controller-gen/go.mod)
CODE_GENERATOR_VERSION := $(shell awk '$$1 == "k8s.io/code-generator" {print $$2}' internal/tools/code-generator/go.mod)
GOLANGCI_LINT_VERSION  := $(shell awk '$$1 == "github.com/golangci/golangci-lint/v2" {print $$2}' internal/tools/golangci-lint/go.mod)
GOTESTSUM_VERSION      := $(shell awk '$$1 == "gotest.tools/gotestsum" {print $$2}' internal/tools/gotestsum/go.mod)
PROTOCOMPILE_VERSION   := $(shell awk '$$1 == "github.com/bufbuild/protocompile" {print $$2}' internal/tools/protobuf/go.mod)
CONTROLLER_GEN := $(BIN)/controller-gen-$(CONTROLLER_GEN_VERSION)
# A folder: there are four of them.
CODE_GENERATOR := $(BIN)/code-generator-$(CODE_GENERATOR_VERSION)
# Another: what reads .proto files, and two plugins.
PROTOBUF       := $(BIN)/protobuf-$(PROTOCOMPILE_VERSION)
GOTESTSUM      := $(BIN)/gotestsum-$(GOTESTSUM_VERSION)
GOLANGCI_LINT  := $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION)
# The race detector needs a C compiler.
RACE = $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)

##@ General

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "; print "Usage: make TARGET [NAME=value]"} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-zA-Z_-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Development

# CONTRIBUTING.md describes what each of the three sets of tests proves.
.PHONY: test-fast
test-fast: ## Run the tests that need no API server, and one install on a real one: 3 minutes.
	@$(GO) run ./e2e/tools/cmd/build etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok
	$(GO) test -vet=off -short -p 2 $$($(GO) run ./internal/testrun pure ./...)
	$(GO) test -vet=off -count=1 ./e2e/install -ginkgo.label-filter=smoke

.PHONY: test
test: tools $(GOTESTSUM) ## Run what a pull request must pass (PKG= and ARGS= narrow it down, NODE=try adds a real node, LOAD=1 adds CPU load and pauses).
	@$(if $(RACE),,echo "note: no C compiler, so the race detector is off" >&2)
	$(if $(WHOLE),$(GO) -C $(LIBRARY) test -vet=off -p 2 -timeout $(TIMEOUT) ./...)
	KSCTL_E2E_NODE=$(NODE) $(GO) run ./internal/testrun -gotestsum $(GOTESTSUM) -p $(PARALLEL) $(RACE) $(if $(filter 1,$(LOAD)),-load) -timeout $(TIMEOUT) $(PKG) -- $(ARGS)

.PHONY: chaos
chaos: tools ## Run the controller while commits, people and failures change everything at random: SEED=, MINUTES=10, INSTALLS=30, LOG=file.
	$(GO) run ./e2e/chaos $(if $(SEED),-seed $(SEED)) -minutes $(or $(MINUTES),10) -installs $(or $(INSTALLS),30) $(if $(LOG),-log '$(LOG)')

.PHONY: test-long
test-long: soak chaos mutate ## Run what takes hours: kills, long fuzzing, mutations, a loaded machine, benchmarks.
	KSCTL_TEST_LONG=1 $(GO) test -v -count=1 -timeout 2h ./e2e/removal ./e2e/charts -ginkgo.label-filter=repeat
	KSCTL_TEST_LONG=1 $(GO) test -count=1 -timeout 2h -run HostileValues ./stacks
	$(MAKE) fuzz FUZZTIME=5m
	$(MAKE) test LOAD=1
	$(GO) run ./e2e/scale -installs 10000 -start
	$(MAKE) bench

.PHONY: tools
tools: ## Build what tests run against, a control plane, Flux' controllers and Argo CD: twenty minutes once, then kept. KUBEBUILDER_ASSETS replaces it.
	@$(GO) run ./e2e/tools/cmd/build $(if $(and $(NODE),$(filter 0,$(shell id -u))),-node)

.PHONY: node
node: ## Run the chart, and the kinds of the catalog, on a real node that is made here, and taken down again: root, Linux, and what apt-get has of containerd. NODE=try skips it where none can be made.
	@$(MAKE) test PKG='./e2e/node ./e2e/systems' NODE=$(or $(NODE),1)

.PHONY: demo
demo: ## Show the controllers at work on this machine alone; KEEP=1 leaves all of it up until Ctrl-C.
	@echo 'compiling the demo (about 2 minutes with an empty build cache, else seconds)' >&2
	@$(GO) run ./e2e/demo

.PHONY: build
build: ## Build the programs into bin/.
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w $(if $(VERSION),-X github.com/ksctl/gitops/internal/version.version=$(VERSION))" -o $(BIN)/ ./cmd/...

.PHONY: manifests
manifests: $(CONTROLLER_GEN) ## Generate CRDs and the controller's role from the markers in the code, Argo CD's keys from their scripts, and what the chart has of them.
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:dir=config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=ksctl-gitops paths=./internal/manager/... output:rbac:dir=config/rbac
	$(GO) run ./config/argocd/gen
	cp config/crd/bases/*.yaml config/chart/files/crds/
	cp config/rbac/role.yaml config/rbac/user_roles.yaml config/chart/files/

.PHONY: generate
generate: $(CONTROLLER_GEN) $(CODE_GENERATOR) $(PROTOBUF) ## Generate the deep copies of the types, their clients, and what is spoken over gRPC.
	$(PROTOBUF)/protobuf $(PROTOBUF) internal internal
	@# The old clients go first: types that they name may be gone.
	.ci/clients $(CODE_GENERATOR) api/client
	$(CONTROLLER_GEN) object paths=./api/...

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format the code.
	$(GOLANGCI_LINT) fmt

.PHONY: vet
vet: ## Run go vet.
	$(GO) vet $(PKG)
	$(if $(WHOLE),$(GO) -C $(LIBRARY) vet ./...)

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run the linters (ARGS=--fix mends what can be mended).
	$(GOLANGCI_LINT) run --allow-parallel-runners $(ARGS) $(PKG)
	$(if $(WHOLE),cd $(LIBRARY) && $(GOLANGCI_LINT) run --allow-parallel-runners $(ARGS) ./...)

.PHONY: fuzz
fuzz: ## Run each fuzz target, or those that TARGET matches, for FUZZTIME (30s).
	@GO=$(GO) .ci/fuzz $(FUZZTIME) '$(TARGET)'

.PHONY: soak
soak: tools ## Kill the controller, and an agent, KILLS times (300) at random moments; SEED= repeats a run.
	KSCTL_E2E_KILLS=$(KILLS) KSCTL_E2E_SEED=$(SEED) $(GO) test -v -count=1 -timeout 3h ./e2e/faults -ginkgo.focus 'that is killed'
	KSCTL_E2E_KILLS=$(KILLS) $(GO) test -v -count=1 -timeout 3h ./e2e/autoscaler -ginkgo.focus 'that are killed'

.PHONY: mutate
mutate: tools ## Change the engine line by line, and fail when its tests do not detect a change (ONLY= narrows it down).
	$(GO) run ./internal/mutate -only '$(ONLY)'

.PHONY: bench
bench: tools ## Measure the controller beside others and write docs/benchmarks: hours. SCENARIO=a,b N=100 RUNS=1 PEER= PROFILE=1 OUT= change that, RESUME=1 goes on.
	$(GO) run ./e2e/bench -out '$(OUT)' -runs $(RUNS) $(if $(SCENARIO),-scenario $(SCENARIO)) $(if $(N),-installs $(N)) $(if $(PEER),-peer $(PEER)) $(if $(filter 1,$(PROFILE)),-profile) $(if $(filter 1,$(RESUME)),-resume) $(ARGS)

.PHONY: pushes
pushes: tools ## Measure from git push to the object applied, PUSHES times (20) through Flux and through a KsctlSource with a webhook.
	KSCTL_E2E_PUSHES=$(PUSHES) $(GO) test -v -count=1 -timeout $(TIMEOUT) ./e2e/flux -ginkgo.focus 'From git push'

.PHONY: microbench
microbench: ## Run the benchmarks of single functions (PKG= and ARGS= narrow it down).
	$(GO) test -run '^$$' -bench . -benchmem $(ARGS) $(PKG) | grep -v 'no test files'

.PHONY: docs
docs: ## Write the pages of docs/ that follow from the code.
	$(GO) run ./docs/gen

##@ Checks

.PHONY: verify
verify: verify-style verify-modules verify-generated verify-docs verify-format lint ## Fail when something generated, documented or formatted is stale, or a linter complains.

.PHONY: verify-style
verify-style:
	$(GO) run ./internal/stylecheck

.PHONY: verify-modules
verify-modules:
	@find . -name go.mod -not -path './bin/*' | sort | while read -r mod; do \
	  echo "go mod tidy -diff in $$(dirname "$$mod")"; $(GO) -C "$$(dirname "$$mod")" mod tidy -diff; done

.PHONY: verify-generated
verify-generated: $(CONTROLLER_GEN) $(CODE_GENERATOR) $(PROTOBUF)
	.ci/stale $(CONTROLLER_GEN) $(CODE_GENERATOR) $(PROTOBUF)

.PHONY: verify-docs
verify-docs:
	$(GO) test ./docs/...

.PHONY: verify-format
verify-format: $(GOLANGCI_LINT)
	$(GOLANGCI_LINT) fmt --diff

##@ Release (docs/release.md)

RELEASE = $(GO) run ./internal/release --out '$(BIN)/release' $(if $(VERSION),--version '$(VERSION)')

.PHONY: image
image: ## Build the controller's image for amd64 and arm64 into bin/release/image, without a container engine; IMG=repository pushes it, PLATFORM= is for others, IMAGE=dynamodb-partition, workers, worker-registry or worker-api builds another image.
	$(RELEASE) image $(if $(IMAGE),--name $(IMAGE)) $(if $(PLATFORM),--platform $(PLATFORM)) $(if $(IMG),--push $(IMG))

.PHONY: docker-build docker-push
docker-build: ## As image, and pushes nothing.
	$(RELEASE) image $(if $(PLATFORM),--platform $(PLATFORM))
docker-push: ## As image, and pushes it: make docker-push IMG=repository VERSION=0.1.0
	@test -n '$(IMG)' || { echo 'error: say where to: make docker-push IMG=repository VERSION=0.1.0' >&2; exit 1; }
	$(RELEASE) image $(if $(PLATFORM),--platform $(PLATFORM)) --push $(IMG)

.PHONY: release
release: ## Everything that a release consists of, pushed: make release VERSION=0.1.0 REGISTRY=registry.example.com/ksctl
	@test -n '$(VERSION)' -a -n '$(REGISTRY)' || { echo 'error: make release VERSION=0.1.0 REGISTRY=registry.example.com/ksctl' >&2; exit 1; }
	rm -rf '$(BIN)/release'
	$(RELEASE) image --push $(REGISTRY)/controller
	$(RELEASE) image --name dynamodb-partition --push $(REGISTRY)/dynamodb-partition
	$(RELEASE) image --name workers --push $(REGISTRY)/workers
	$(RELEASE) image --name worker-registry --push $(REGISTRY)/worker-registry
	$(RELEASE) image --name worker-api --push $(REGISTRY)/worker-api
	$(RELEASE) chart --image $(REGISTRY)/controller --push $(REGISTRY)/charts
	$(RELEASE) manifest --image $(REGISTRY)/controller
	$(RELEASE) catalog --push $(REGISTRY)/catalog
	$(RELEASE) cli

.PHONY: sign
sign: ## Sign what was pushed and the checksums: with COSIGN_KEY, or as who a token of the environment says (keyless).
	@GO=$(GO) .ci/sign '$(BIN)/release'

##@ Cluster (the current context of kubectl)

.PHONY: install
install: ## Install the CRDs.
	$(KUBECTL) apply --server-side -k config/crd

.PHONY: uninstall
uninstall: unused ## Delete the CRDs. Refused while there are objects of them.
	$(KUBECTL) delete --ignore-not-found -k config/crd

.PHONY: run
run: install ## Run the controller on this machine against the cluster, with your own rights.
	$(KUBECTL) apply --server-side -f config/manager/namespace.yaml
	$(GO) run ./cmd/controller --storage-addr=127.0.0.1:9790 --storage-adv-addr=127.0.0.1:9790 --log-encoding=console $(ARGS)

.PHONY: deploy
deploy: ## Install CRDs, roles and the controller: make deploy IMG=image:tag
	@test -n '$(IMG)' || { echo 'error: say which image to deploy: make deploy IMG=image:tag' >&2; exit 1; }
	@mkdir -p $(BIN)/deploy
	@printf '%s\n' 'resources: [../../config/default]' 'patches:' '- target: {kind: Deployment, name: ksctl-gitops}' \
	  '  patch: |' '    [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "$(IMG)"}]' >$(BIN)/deploy/kustomization.yaml
	$(KUBECTL) apply --server-side -k $(BIN)/deploy

.PHONY: undeploy
undeploy: unused ## Delete the controller, its roles and the CRDs. Refused while there are objects of them.
	$(KUBECTL) delete --ignore-not-found -k config/default

# Without a controller nobody removes what they installed, and their finalizers
# would hold them for ever.
.PHONY: unused
unused:
	@for kind in ksctlinstalls.apps ksctlremoves.apps ksctlsources.apps importstates.storage exportstates.storage ksctlautoscalers.cluster ksctlclusters.cluster; do \
	  test -n "$$($(KUBECTL) get crd $$kind.ksctl.com --ignore-not-found --output name)" || continue; \
	  left=$$($(KUBECTL) get $$kind.ksctl.com --all-namespaces --output name); \
	  test -z "$$left" || { echo "error: delete these first, while the controller runs: $$left" >&2; exit 1; }; done

$(CONTROLLER_GEN): internal/tools/controller-gen/go.mod internal/tools/controller-gen/go.sum
	@GO=$(GO) .ci/tool internal/tools/controller-gen sigs.k8s.io/controller-tools/cmd/controller-gen $@

$(CODE_GENERATOR): internal/tools/code-generator/go.mod internal/tools/code-generator/go.sum
	@GO=$(GO) .ci/tool internal/tools/code-generator tool $@

$(PROTOBUF): internal/tools/protobuf/go.mod internal/tools/protobuf/go.sum internal/tools/protobuf/main.go
	@GO=$(GO) .ci/tool internal/tools/protobuf tool $@

$(GOTESTSUM): internal/tools/gotestsum/go.mod internal/tools/gotestsum/go.sum
	@GO=$(GO) .ci/tool internal/tools/gotestsum gotest.tools/gotestsum $@

$(GOLANGCI_LINT): internal/tools/golangci-lint/go.mod internal/tools/golangci-lint/go.sum
	@GO=$(GO) .ci/tool internal/tools/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint $@
