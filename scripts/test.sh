#!/bin/sh
# The tests, in tiers: `test.sh quick`, `test.sh ordinary`, `test.sh all [1/N]`. See docs/internals/testing.md.
# Single parts of `all`, which it calls itself: `test.sh client NAME`, `fuzz`, `count`, `deny`. 77: it cannot run here.
set -eu
cd "$(dirname "$0")/.."

# The same run each time; for new ground: STILLFRAME_SEED=$RANDOM scripts/test.sh
export STILLFRAME_SEED="${STILLFRAME_SEED:-20261120}"
target=${CARGO_TARGET_DIR:-target}

part() { # what, command...
    printf '\n== %s\n' "$1"
    shift
    since=$(date +%s)
    "$@"
    printf '%s s\n' "$(($(date +%s) - since))"
}
skip() {
    echo "$*"
    exit 77
}
documents() {
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
}

# Format, lints, units, documents, layers.
quick() {
    part "format" cargo fmt --all --check
    part "lints" cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
    part "documents" documents
    part "units" suites quick
}

# Servers that tests start, and the runner, as programs.
suites() {
    cargo build --workspace --locked --quiet
    "$target/debug/stillframe-suites" "$@"
}

ordinary() {
    part "format" cargo fmt --all --check
    part "lints" cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
    part "build" cargo test --workspace --locked --no-run --quiet
    part "documents" documents
    part "examples in documents" cargo test --workspace --doc --locked --quiet
    part "suites" suites ordinary
}

# Everything else. With a share, of the long parts those that are this commit's.
rest() {
    part "build" cargo test --workspace --locked --no-run --quiet
    part "the rest" suites rest ${1:+--share "$1"}
}

client() {
    out=$(crates/server/tests/clients/run.sh "$target/debug/stillframe-server" "$1") || { echo "$out"; exit 1; }
    case "$out" in SKIPPED*) skip "$out" ;; esac
    echo "$out"
}

# Each fuzzer for half a minute.
fuzz() {
    rustup toolchain list 2>/dev/null | grep -q '^nightly' || skip "fuzzing takes a nightly toolchain: rustup toolchain install nightly"
    cargo fuzz --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-fuzz ||
        skip "fuzzing takes cargo-fuzz, which cannot be installed: cargo install cargo-fuzz"
    for name in $(cargo +nightly fuzz list); do
        case "$name" in
            rdb_reader) more="-malloc_limit_mb=64 crates/store/tests/rdb/fixtures" ;;
            dump_payload | stream_payload) more="-malloc_limit_mb=64" ;;
            page_file) more="-max_len=64 -len_control=0" ;;
            collections) more="-max_len=96" ;;
            log_blocks) more="-max_len=128 -len_control=0" ;;
            # mlua refers to its counters by pointers to their ends, which the leak checker does not follow.
            script_decoders) more="-detect_leaks=0" ;;
            *) more="" ;;
        esac
        corpora="" flags=""
        for word in $more; do case "$word" in -*) flags="$flags $word" ;; *) corpora="$corpora $word" ;; esac; done
        mkdir -p "fuzz/corpus/$name"
        # shellcheck disable=SC2086 # lists of words
        cargo +nightly fuzz run "$name" "fuzz/corpus/$name" $corpora -- -max_total_time=30 $flags
    done
}

# What GET and SET execute, against the figures in the tree.
count() {
    scripts/setup.sh count
    cargo build --release --locked --quiet -p stillframe-server -p stillframe-bench
    "${CARGO_TARGET_DIR:-target}/release/stillframe-bench" count --commands get,set --check crates/bench/counts.json
}

deny() {
    cargo deny --version >/dev/null 2>&1 || skip "cargo-deny is not installed: cargo install --locked cargo-deny"
    cargo deny --offline check licenses bans sources
    cargo deny fetch db || skip "the list of advisories is out of reach"
    cargo deny --offline check advisories
}

case "${1:-ordinary}" in
    quick) quick ;;
    ordinary) ordinary ;;
    all)
        [ -n "${2:-}" ] || ordinary
        rest "${2:-}" ;;
    client) client "$2" ;;
    fuzz) fuzz ;;
    count) count ;;
    deny) deny ;;
    *) echo "test.sh: unknown tier '$1': quick, ordinary or all" >&2; exit 2 ;;
esac
