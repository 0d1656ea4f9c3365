# Everything is done by cargo; this file is the list of what there is to do. `make help` prints it.
.DEFAULT_GOAL := help
.PHONY: help test demo demo-clean images release push judges bench

# An unset KEEP deletes the machine at the end of the demo.
KEEP ?=
JUDGE ?=
FIGURE ?=
AGENTS ?= daemonset
RELEASE ?=
REGISTRY ?=
PART ?=
ARCH ?=

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  Needed: git, make, Rust 1.95 (rustup.rs), Go 1.26 (go.dev) and root or sudo. The rest is fetched and built once.'

test: ## Run every check and test; the last line counts them
	@$(call need,cargo,Rust 1.95 or newer: https://rustup.rs)
	@$(BUILD) && $(XTASK) test

demo: ## Boot three virtual servers by kubectl apply, live (PART=machine, network or workflow: that alone; KEEP=1: leave it running; AGENTS=process: no pods; RELEASE=FOLDER: of `make release`)
	@$(call need,cargo,Rust 1.95 or newer: https://rustup.rs)
	@$(call need,go,Go 1.26 or newer: https://go.dev/dl)
	@$(BUILD) $(if $(RELEASE),,&& $(XTASK) image >/dev/null) && $(AS_ROOT) $(INSTALLED) $(PROGRAMS)/demo run --agents $(AGENTS) $(if $(KEEP),--keep) $(if $(PART),--part $(PART))

demo-clean: ## Delete the demo's machine, show that nothing is left, end the cluster
	@$(BUILD) && $(AS_ROOT) $(PROGRAMS)/demo clean

images: ## Write the container images that ship, optimised, to target/release-images (ARCH=arm64: of one architecture)
	@$(call need,cargo,Rust 1.95 or newer: https://rustup.rs)
	@$(call need,go,Go 1.26 or newer: https://go.dev/dl)
	@$(BUILD) && $(XTASK) image --release $(if $(ARCH),--arch $(ARCH))

release: ## Write all that an installation needs to dist/VERSION: images, charts, bmctl, checksums, instructions (ARCH=arm64: of one architecture)
	@$(call need,cargo,Rust 1.95 or newer: https://rustup.rs)
	@$(call need,go,Go 1.26 or newer: https://go.dev/dl)
	@$(BUILD) && $(XTASK) release $(if $(ARCH),--arch $(ARCH))

push: ## Push the images of the release to a registry (REGISTRY=host:port/path), with the password of docker login
	@$(call need,cargo,Rust 1.95 or newer: https://rustup.rs)
	@test -n '$(REGISTRY)' || { echo 'make: say where to: make push REGISTRY=registry.example:5000/metalplane' >&2; exit 1; }
	@$(BUILD) && $(XTASK) push '$(REGISTRY)'

judges: ## Run every third-party judge (JUDGE=name: one of them)
	@$(call need,cargo,Rust 1.95 or newer: https://rustup.rs)
	@$(call need,go,Go 1.26 or newer: https://go.dev/dl)
	@$(BUILD) && $(XTASK) judges $(JUDGE)

bench: ## Measure the figures of docs/benchmarks.md (FIGURE=name: one kind of them)
	@$(call need,cargo,Rust 1.95 or newer: https://rustup.rs)
	@$(call need,go,Go 1.26 or newer: https://go.dev/dl)
	@$(BUILD) && $(XTASK) bench $(FIGURE)

# The whole workspace at once: a choice of packages has other features, and builds the dependencies once more.
BUILD = echo 'building (cargo shows what)' >&2 && cargo build --workspace --bins
PROGRAMS = $${CARGO_TARGET_DIR:-target}/$$(rustc -vV | sed -n 's/^host: //p')/debug
XTASK = $(PROGRAMS)/xtask

# Nothing is built twice there, and what incremental builds keep is gigabytes.
ifdef CI
export CARGO_INCREMENTAL = 0
endif

# cargo builds as the caller; what it starts needs root.
ifneq ($(shell id -u),0)
AS_ROOT = sudo env PATH="$$PATH" HOME="$$HOME"
endif

# What the demo installs, where it is not the checkout's.
INSTALLED = env $(if $(RELEASE),METALPLANE_RELEASE=$(abspath $(RELEASE)))

need = command -v $(1) >/dev/null || { echo 'make: $(1) is missing; install $(2)' >&2; exit 1; }
