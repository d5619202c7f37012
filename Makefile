# Each target does its own set-up: a machine with Rust and nothing else of ours is enough.
# Arguments: DEMO_ARGS for `demo` (--exit, --runtime docker|process), ROUNDS for `chaos`, BENCH_ARGS for `bench`.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

DEMO_ARGS ?=
BENCH_ARGS ?=
ROUNDS ?= 20

.PHONY: help demo test check fix bench chaos

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## three managers and three agents, a job, the loss of the leader; Ctrl-C ends it (DEMO_ARGS=--exit ends by itself)
	@exec chaos/demo.sh $(DEMO_ARGS)

test: ## everything that must hold before a change lands: lints, docs, all tests, demo on each runtime, leader kills
	@exec chaos/test.sh all

check: ## the quick half of `test`: format, lints, docs
	@exec chaos/test.sh check

fix: ## format the sources and apply what clippy can repair by itself
	@cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged
	@cargo fmt --all

bench: ## print the speed table (never asserted)
	@exec chaos/bench.sh $(BENCH_ARGS)

chaos: ## ROUNDS kills of the leader under load and under watchers, ROUNDS faults of agents; everything is checked
	@ROUNDS=$(ROUNDS) exec chaos/kill-leader.sh
