#!/usr/bin/env bash
# Real clusters: ROUNDS times SIGKILL on the leader under concurrent submits, then the check of the whole history; as
# often under watchers; ROUNDS kills, pauses and cuts of agents.
# Environment: ROUNDS (20), RUNTIME (auto|docker|process|fake), SEED, WRITERS. Further arguments go to `chaos kill-leader`.
set -euo pipefail
# shellcheck source=chaos/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

trap stop_engine EXIT
need_toolchain
build_release
case ${RUNTIME:-auto} in
    docker) start_engine || fail "RUNTIME=docker needs a Docker engine"; "$ROOT/chaos/images.sh" ;;
    auto) if engine_answers; then "$ROOT/chaos/images.sh" || true; fi ;;
esac
CHAOS kill-leader --rounds "${ROUNDS:-20}" --runtime "${RUNTIME:-auto}" ${SEED:+--seed "$SEED"} \
    ${WRITERS:+--writers "$WRITERS"} "$@"
CHAOS watch --rounds "${ROUNDS:-20}" ${SEED:+--seed "$SEED"}
CHAOS kill-agents --rounds 3 --faults "${ROUNDS:-20}" --runtime "${RUNTIME:-auto}" ${SEED:+--seed "$SEED"}
