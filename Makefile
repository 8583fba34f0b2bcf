# Two commands: `make run` serves on 127.0.0.1:6379 with its data in ./data; `make test` runs every test.
# `make race` measures stores that can be linked, one against the other; ARGS='--help' says how. `make race-test` tests that.

DATA ?= data
PORT ?= 6379

.PHONY: run build test check clean race race-test

build:
	@scripts/setup.sh build
	cargo build --release --locked

run:
	@scripts/setup.sh build
	cargo build --release --locked --package stillframe-server
	@mkdir -p $(DATA)
	exec $${CARGO_TARGET_DIR:-target}/release/stillframe-server --port $(PORT) --dir $(DATA) $(ARGS)

test:
	@scripts/setup.sh build test
	scripts/test.sh

race:
	@scripts/setup.sh build race
	scripts/race.sh $(ARGS)

race-test:
	@scripts/setup.sh build race
	scripts/race.sh --test

# Format and lints alone.
check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

clean:
	cargo clean
