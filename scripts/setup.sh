#!/bin/sh
# Installs what is missing to build (`setup.sh build`) or to test (`setup.sh test`). Debian and its kin; elsewhere it
# says what to install.
set -eu

missing=""
need() { # command, package
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}

for goal in "$@"; do
    case "$goal" in
        build) need cc build-essential ;;
        test) need redis-server redis-server; need redis-cli redis-tools ;;
        *) echo "setup.sh: unknown goal '$goal'" >&2; exit 2 ;;
    esac
done

needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
if ! command -v cargo >/dev/null 2>&1; then
    echo "setup.sh: there is no Rust toolchain: install one from https://rustup.rs ($needed or later)" >&2
    [ -e "${HOME:-}/.cargo/env" ] && echo "setup.sh: or is it that this shell has not read it yet? . ~/.cargo/env" >&2
    exit 1
fi
found=$(cargo --version | cut -d ' ' -f 2)
if [ "$(printf '%s\n' "$needed" "$found" | sort -V | head -n 1)" != "$needed" ]; then
    echo "setup.sh: cargo $found is too old: install $needed or later from https://rustup.rs" >&2
    exit 1
fi
[ -z "$missing" ] && exit 0

as_root=""
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || { echo "setup.sh: as root, install:$missing" >&2; exit 1; }
    as_root="sudo"
fi
command -v apt-get >/dev/null 2>&1 || { echo "setup.sh: please install:$missing" >&2; exit 1; }
echo "setup.sh: installing$missing"
# The packages' own services are not wanted: tests start the servers that they need.
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
$as_root apt-get update -qq
# shellcheck disable=SC2086 # a list of packages
$as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $missing >/dev/null
