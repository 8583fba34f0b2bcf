#!/bin/sh
# The benchmark of stores that can be linked, with all its peers: `race.sh --rounds 1`. Or its tests: `race.sh --test`.
set -eu
cd "$(dirname "$0")/.."

# The system's library, instead of a build of RocksDB that takes a quarter of an hour.
library=$(cc -print-file-name=librocksdb.so)
case "$library" in
    /*) ROCKSDB_LIB_DIR=$(dirname "$library"); ROCKSDB_INCLUDE_DIR=${ROCKSDB_INCLUDE_DIR:-/usr/include}
        export ROCKSDB_LIB_DIR ROCKSDB_INCLUDE_DIR ;;
    *) echo "race.sh: librocksdb is not installed: its sources are built" >&2 ;;
esac

if [ "${1:-}" = --test ]; then
    cargo clippy -p stillframe-bench -p stillframe-wiredtiger-sys --all-targets --features stillframe-bench/peers --locked \
        -- -D warnings
    cargo test -p stillframe-bench --features peers --locked --bin stillframe-bench -- kv:: tpcc::
    exec cargo test -p stillframe-bench --features peers --locked --test small_runs -- vmcache
fi
cargo build --release --locked -p stillframe-bench --features peers
exec "${CARGO_TARGET_DIR:-target}/release/stillframe-bench" vmcache "$@"
