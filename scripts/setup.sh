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

if ! command -v cargo >/dev/null 2>&1; then
    echo "setup.sh: there is no Rust toolchain: install one from https://rustup.rs (1.85 or later)" >&2
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
