#!/usr/bin/env bash
# Builds the programs and shows the demo. Arguments go to `chaos demo` (--exit, --runtime docker|process|auto).
# Where no Docker engine can be had, the demo says so and takes the process runtime.
set -euo pipefail
# shellcheck source=chaos/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

trap stop_engine EXIT
need_toolchain
build_release
if [[ " $* " != *"process"* ]]; then
    if start_engine; then "$ROOT/chaos/images.sh" || say "the test image could not be built"; fi
fi
# Ctrl-C is the demo's to handle: it stops what it started, then this script stops the engine it started.
trap '' INT
CHAOS demo "$@"
