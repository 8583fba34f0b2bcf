#!/bin/sh
# Installs what is missing to build (`setup.sh build`), to test (`setup.sh test`, for everything `all`, too), to build the
# benchmark with all its peers (`setup.sh race`), to count instructions (`setup.sh count`), to build and package the kernel
# modules (`setup.sh kernel`: no kernel image, no server), or to test them in virtual machines (`setup.sh kernel-test`: both).
# Debian and its kin; elsewhere it says what to install.
set -eu

here=$(dirname "$0")
missing=""
need() { # command, package
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need_package() {
    dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed || missing="$missing $1"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}
is_known() {
    apt-cache show "$1" >/dev/null 2>&1
}

# The running kernel's headers, or, where it is none of the distribution's, those of the distribution's newest.
need_headers() {
    release=$(uname -r)
    [ -f "/lib/modules/$release/build/Makefile" ] && return
    is_known "linux-headers-$release" || as_root apt-get update -qq || true
    if is_known "linux-headers-$release"; then
        need_package "linux-headers-$release"
        return
    fi
    echo "setup.sh: there is no package linux-headers-$release: the module is built for another kernel than the running one" >&2
    case "$(uname -m)" in
        x86_64) need_package linux-headers-amd64 ;;
        aarch64) need_package linux-headers-arm64 ;;
    esac
}

rust="" again=""
for goal in "$@"; do
    case "$goal" in
        build) rust=yes; need cc build-essential ;;
        test)
            rust=yes; need redis-server redis-server; need redis-cli redis-tools; need valgrind valgrind
            # Debian's browser looks at the page of the study. Elsewhere its name is another one, and that test is skipped.
            is_known chromium && need chromium chromium ;;
        all)
            # Fuzzers, clients and the kernel's tests see to their own needs, or say what they lack.
            rust=yes; need objdump binutils; need git git
            is_known ruby-sidekiq && need sidekiq ruby-sidekiq ;;
        race)
            # The binding of RocksDB is made from the library's header, which takes libclang.
            rust=yes; need cc build-essential
            need_package librocksdb-dev; need_package libwiredtiger-dev; need_package libclang-dev ;;
        count)
            need redis-server redis-server; need valgrind valgrind; need strace strace; need objdump binutils ;;
        kernel)
            need cc build-essential; need depmod kmod; need pahole pahole; need_headers ;;
        kernel-test)
            need cc build-essential; need depmod kmod; need pahole pahole; need debootstrap debootstrap; need_headers
            if command -v python3 >/dev/null 2>&1; then
                for package in $("$here/../kernel/selftests/run" --packages); do need_package "$package"; done
            else # the list is in a script of Python
                missing="$missing python3" again=yes
            fi ;;
        *) echo "setup.sh: unknown goal '$goal'" >&2; exit 2 ;;
    esac
done

check_rust() {
    needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$here/../Cargo.toml")
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
}
[ -z "$rust" ] || check_rust
[ -z "$missing" ] && exit 0

if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null 2>&1; then
    echo "setup.sh: as root, install:$missing" >&2
    exit 1
fi
command -v apt-get >/dev/null 2>&1 || { echo "setup.sh: please install:$missing" >&2; exit 1; }
echo "setup.sh: installing$missing"
as_root apt-get update -qq
# The packages' own services are not wanted: tests start the servers that they need.
# shellcheck disable=SC2086 # a list of packages
as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $missing >/dev/null
[ -z "$again" ] || exec "$0" "$@"
