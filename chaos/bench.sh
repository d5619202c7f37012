#!/usr/bin/env bash
# Prints the speed table; nothing in it is asserted. Arguments go to `chaos bench`.
set -euo pipefail
# shellcheck source=chaos/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_toolchain
build_release
cd "$ROOT"
cargo run --quiet --release --locked -p quorate-testkit --example compactness
cargo run --quiet --release --locked -p quorate-scheduler --example placements
cargo run --quiet --release --locked -p quorate-orchestrator --example passes
CHAOS bench "$@"
