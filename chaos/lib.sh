# shellcheck shell=bash disable=SC2034
# Shared by the scripts beside it; sourced, never run. Expects `set -euo pipefail`.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
[[ $TARGET == /* ]] || TARGET=$PWD/$TARGET
TEST_IMAGE=quorate-test/busybox:1
ENGINE_PID=""
ENGINE_LOG=""
APT_UPDATED=""
VENV=""

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# until_true SECONDS COMMAND…: waits for a condition, with a bound.
until_true() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < deadline)) || return 1
        sleep 0.2
    done
}

# as_root COMMAND…: runs it as root, or fails when that is not possible without asking.
as_root() {
    if ((EUID == 0)); then "$@"; elif have sudo; then sudo -n "$@"; else return 1; fi
}

# apt_install PACKAGE…: only for what is missing; quiet unless it fails.
apt_install() {
    local log
    have apt-get || { say "cannot install $*: no apt-get here; install it by hand"; return 1; }
    log=$(mktemp)
    say "installing $* (Debian packages) …"
    if [[ -z $APT_UPDATED ]]; then
        as_root apt-get update >"$log" 2>&1 || { tail -n 5 "$log" >&2; rm -f "$log"; return 1; }
        APT_UPDATED=yes
    fi
    if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

# What every build needs: Rust, and a C compiler for the C parts of two dependencies.
need_toolchain() {
    have cargo || fail "Rust is missing: install it (version in Cargo.toml, rust-version) and run this again"
    if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
        have rustup && rustup component add rustfmt clippy >/dev/null 2>&1 ||
            fail "rustfmt or clippy is missing and could not be added: install these parts of Rust"
    fi
    have cc || apt_install gcc libc6-dev || fail "a C compiler (cc) is missing and could not be installed"
}

need_nextest() {
    cargo nextest --version >/dev/null 2>&1 && return 0
    say "installing cargo-nextest, the test runner (once, some minutes) …"
    cargo install cargo-nextest --locked || fail "cargo-nextest could not be installed"
}

engine_answers() { have docker && timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
engine_settled() { engine_answers || ! kill -0 "$ENGINE_PID" 2>/dev/null; }

# Makes a Docker engine answer: the one that runs, the machine's service, or one of our own that stop_engine ends.
start_engine() {
    engine_answers && return 0
    if ! have dockerd || ! have docker; then
        apt_install docker.io iptables || { say "no Docker engine: docker.io could not be installed"; return 1; }
    fi
    if [[ -d /run/systemd/system ]]; then
        as_root systemctl start docker >/dev/null 2>&1 && until_true 60 engine_answers && return 0
    fi
    engine_answers && return 0
    ((EUID == 0)) || { say "no Docker engine answers, and only root can start one"; return 1; }
    ENGINE_LOG=$(mktemp -d "${TMPDIR:-/tmp}/quorate-dockerd.XXXXXX")
    say "starting a Docker engine (log: $ENGINE_LOG/dockerd.log) …"
    setsid dockerd >"$ENGINE_LOG/dockerd.log" 2>&1 </dev/null &
    ENGINE_PID=$!
    until_true 60 engine_settled || true
    engine_answers && return 0
    say "the Docker engine does not answer; the end of its log:"
    tail -n 5 "$ENGINE_LOG/dockerd.log" >&2 || true
    stop_engine
    return 1
}

engine_gone() { ! kill -0 "$ENGINE_PID" 2>/dev/null; }

# Ends the engine that start_engine started, and no other; its log goes with it.
stop_engine() {
    [[ -n $ENGINE_PID ]] || return 0
    kill -TERM "$ENGINE_PID" 2>/dev/null || true
    until_true 30 engine_gone || kill -KILL "$ENGINE_PID" 2>/dev/null || true
    rm -rf "$ENGINE_LOG"
    ENGINE_PID=""
}

# The two programs, optimised: what users run is what is shown and measured.
build_release() {
    (cd "$ROOT" && cargo build --release --locked -p quorate -p quorate-chaos)
}

CHAOS() { "$TARGET/release/chaos" --quorate "$TARGET/release/quorate" --root "$ROOT" "$@"; }

# need_venv NAME PACKAGE…: a Python environment with exactly these packages at $TARGET/venv/NAME; sets VENV.
need_venv() {
    local name=$1 wanted log
    shift
    wanted=$(printf '%s\n' "$@")
    VENV=$TARGET/venv/$name
    [[ -x $VENV/bin/python && $(cat "$VENV/packages" 2>/dev/null) == "$wanted" ]] && return 0
    rm -rf "$VENV"
    log=$(mktemp)
    say "making a Python environment with $* …"
    mkdir -p "$TARGET/venv"
    if ! python3 -m venv "$VENV" >"$log" 2>&1; then
        apt_install python3 python3-venv && python3 -m venv "$VENV" >"$log" 2>&1 ||
            { tail -n 5 "$log" >&2; rm -f "$log"; fail "Python cannot make an environment of its own"; }
    fi
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >"$log" 2>&1 ||
        { tail -n 5 "$log" >&2; rm -f "$log"; fail "the Python packages could not be installed: $*"; }
    rm -f "$log"
    # Last: what broke off before is made anew.
    printf '%s\n' "$wanted" >"$VENV/packages"
}

# What clients in other languages need: Python with gRPC in $VENV, and curl.
need_foreign() {
    local grpc=1.85.1
    have curl || apt_install curl || fail "curl is missing and could not be installed"
    need_venv foreign grpcio==$grpc grpcio-tools==$grpc grpcio-health-checking==$grpc grpcio-reflection==$grpc \
        grpcio-status==$grpc
}
