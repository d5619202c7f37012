#!/usr/bin/env bash
# Checks the protos by the rules in proto/buf.yaml: lint, and that clients of the last release are not broken.
#   chaos/proto.sh            the check
#   chaos/proto.sh release    notes what the public packages promise from now on (proto/baseline.binpb): run it when a
#                             release is cut, and commit the file with it
set -euo pipefail
# shellcheck source=chaos/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

baseline=proto/baseline.binpb
need_venv buf buf-bin==1.75.0
buf=$VENV/bin/buf

"$buf" lint proto || fail "the protos break the rules of proto/buf.yaml"
case ${1:-check} in
    release)
        "$buf" build proto --path proto/quorate/api --path proto/quorate/common --exclude-source-info -o "$baseline"
        say "noted in $baseline: what clients may rely on from this release on"
        ;;
    check)
        "$buf" breaking proto --against "$baseline" ||
            fail "clients of the last release would break: keep the old field or call beside the new one"
        # The check itself: a renamed field and a call that is gone must be found.
        broken=$(mktemp -d)
        trap 'rm -rf "$broken"' EXIT
        cp -r proto/. "$broken"
        sed -i 's/bool purge = 3;/bool forget = 3;/; /rpc GetJob(/d' "$broken/quorate/api/v1/job.proto"
        found=$("$buf" breaking "$broken" --against "$baseline" 2>&1 || true)
        [[ $found == *'"purge" to "forget"'* && $found == *'"GetJob"'* ]] ||
            fail "a renamed field and a lost call were not found: $found"
        say "the protos are clean, and nothing breaks a client of the last release"
        ;;
    *) fail "usage: chaos/proto.sh [check|release]" ;;
esac
