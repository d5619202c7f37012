#!/usr/bin/env bash
# Prints the speed table; nothing in it is asserted. Arguments go to `chaos bench`.
set -euo pipefail
# shellcheck source=chaos/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_toolchain
build_release
CHAOS bench "$@"
