#!/usr/bin/env bash
# The gate. `check`: format, lints, docs, protos. `all`: these, every test, the demo on each runtime, a short run of
# leader kills, a client in another language.
# Stops at the first stage that fails, and each stage has a bound, so it ends by itself.
set -euo pipefail
# shellcheck source=chaos/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

trap stop_engine EXIT
mode=${1:-all}
report=()

# stage NAME LIMIT COMMAND…: runs one stage and notes how long it took. LIMIT is what timeout(1) takes.
stage() {
    local name=$1 limit=$2 start=$SECONDS status=0
    shift 2
    say "── $name"
    # In the foreground: a terminal's Ctrl-C reaches the command.
    timeout --foreground --kill-after=30s "$limit" "$@" || status=$?
    if ((status != 0)); then
        ((status != 124)) || say "error: stage '$name' ran into its limit of $limit"
        summary
        say "FAILED at '$name' after $((SECONDS - start)) s (exit status $status)"
        exit 1
    fi
    report+=("$(printf '%5d s  %s' $((SECONDS - start)) "$name")")
}

summary() {
    say ""
    ((${#report[@]} == 0)) || printf '%s\n' "${report[@]}" >&2
}

need_toolchain
stage "format" 2m cargo fmt --all -- --check
stage "lints" 30m cargo clippy --workspace --all-targets --locked -- -D warnings
stage "docs" 20m env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --document-private-items
stage "proto" 5m "$ROOT/chaos/proto.sh"
if [[ $mode == all ]]; then
    need_nextest
    start_engine || fail "the tests need a Docker engine, and none answers"
    "$ROOT/chaos/images.sh"
    stage "build of the tests" 40m cargo nextest run --workspace --locked --no-run
    stage "tests" 40m cargo nextest run --workspace --locked
    stage "build for release" 40m cargo build --release --locked -p quorate -p quorate-chaos
    chaos=("$TARGET/release/chaos" --quorate "$TARGET/release/quorate" --root "$ROOT")
    stage "demo on docker" 5m "${chaos[@]}" demo --exit --runtime docker
    stage "demo on processes" 5m "${chaos[@]}" demo --exit --runtime process
    stage "leader kills" 10m "${chaos[@]}" kill-leader --rounds "${ROUNDS:-5}" --runtime docker
    stage "foreign clients" 10m env CHAOS="$TARGET/release/chaos" QUORATE="$TARGET/release/quorate" "$ROOT/chaos/foreign.sh"
    stage "agent kills, pauses and cuts" 10m "${chaos[@]}" kill-agents --rounds 2 --faults 4 --runtime docker
    stage "watches over leader kills" 10m "${chaos[@]}" watch --rounds 4 --watchers 4
fi
summary
say "all held ($SECONDS s)"
