#!/usr/bin/env bash
# A client in Python (grpcio, generated from proto/) and curl against a real cluster, through the loss of the leader.
# Arguments go to `chaos foreign` (--keep). CHAOS and QUORATE name programs that are built already.
set -euo pipefail
# shellcheck source=chaos/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_foreign
[[ -n ${QUORATE:-} ]] || { need_toolchain; build_release; }
"${CHAOS:-$TARGET/release/chaos}" --quorate "${QUORATE:-$TARGET/release/quorate}" --root "$ROOT" \
    foreign --python "$VENV/bin/python" "$@"
