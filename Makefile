# Everything is done by cargo; this file is the list of what there is to do. `make help` prints it.
.DEFAULT_GOAL := help
.PHONY: help test demo demo-clean judges

# An unset KEEP deletes the machine at the end of the demo.
KEEP ?=
JUDGE ?=
AGENTS ?= daemonset

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  Needed: git, make, Rust 1.95 (rustup.rs), Go 1.26 (go.dev) and root or sudo. The rest is fetched and built once.'

test: ## Run every check and test; the last line counts them
	@$(call need,cargo,Rust 1.95 or newer: https://rustup.rs)
	@cargo xtask test

demo: ## Boot two virtual servers by kubectl apply, live (KEEP=1: leave it running; AGENTS=process: no pods)
	@$(call need,cargo,Rust 1.95 or newer: https://rustup.rs)
	@$(call need,go,Go 1.26 or newer: https://go.dev/dl)
	@$(AS_ROOT) --package tests --bin demo -- run --agents $(AGENTS) $(if $(KEEP),--keep)

demo-clean: ## Delete the demo's machine, show that nothing is left, end the cluster
	@$(AS_ROOT) --package tests --bin demo -- clean

judges: ## Run every third-party judge (JUDGE=name: one of them)
	@$(call need,cargo,Rust 1.95 or newer: https://rustup.rs)
	@$(call need,go,Go 1.26 or newer: https://go.dev/dl)
	@cargo xtask judges $(JUDGE)

# cargo builds as the caller; what it starts needs root.
ifeq ($(shell id -u),0)
AS_ROOT = cargo run --quiet
else
AS_ROOT = cargo run --quiet --config 'target."cfg(unix)".runner=["sudo","env","PATH=$(PATH)","HOME=$(HOME)"]'
endif

need = command -v $(1) >/dev/null || { echo 'make: $(1) is missing; install $(2)' >&2; exit 1; }
