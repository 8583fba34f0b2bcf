# Two commands: `make run` serves on 127.0.0.1:6379 with its data in ./data; `make test` runs every test.

DATA ?= data
PORT ?= 6379

.PHONY: run build test check clean

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

# Format and lints alone.
check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

clean:
	cargo clean
