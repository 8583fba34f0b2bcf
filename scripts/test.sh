#!/bin/sh
# Every test, each part with a heading; stops at the first that fails.
set -eu
cd "$(dirname "$0")/.."

# The same run each time; for new ground: STILLFRAME_SEED=$RANDOM scripts/test.sh
export STILLFRAME_SEED="${STILLFRAME_SEED:-20261120}"

part() { printf '\n== %s\n' "$1"; }

part "format and lints"
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings

part "build"
# Servers that tests start, as programs.
cargo build --workspace --locked

part "tests"
cargo test --workspace --locked

part "mistakes in snapshot algorithms"
# They are compiled in for that: each has to be found.
cargo test -p stillframe-algorithms --features mutations --locked
cargo test -p stillframe-transactional --features mutations --locked

part "real clients"
crates/server/tests/clients/run.sh "${CARGO_TARGET_DIR:-target}/debug/stillframe-server"

part "kernel module"
kernel/selftests/package
# In a virtual machine; says SKIP where none can run.
kernel/selftests/run

part "benchmarks of the kernel modules in virtual machines"
# Apart from the other tests, which would slow it down; says so if no machine can run.
cargo test -p stillframe-bench --test small_runs --locked -- --ignored fork
