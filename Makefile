# Two commands: `make run` serves on port 6379 with its data in ./data; `make test` runs all suites on the default backend.
# `make quick` takes two minutes; `make test-all` has everything: other backends, the model checker, real clients, virtual
# machines, fuzzers (SHARE=1/4: without what `make test` has, and of the long parts those that are this commit's).
# `make race` measures stores that can be linked, one against the other; ARGS='--help' says how. `make race-test` tests that.

DATA ?= data
PORT ?= 6379
SHARE ?=

.PHONY: run build quick test test-all clean race race-test

build:
	@scripts/setup.sh build
	cargo build --release --locked

run:
	@scripts/setup.sh build
	cargo build --release --locked --package stillframe-server
	@mkdir -p $(DATA)
	exec $${CARGO_TARGET_DIR:-target}/release/stillframe-server --port $(PORT) --dir $(DATA) $(ARGS)

quick:
	@scripts/setup.sh build
	scripts/test.sh quick

test:
	@scripts/setup.sh build test
	scripts/test.sh ordinary

test-all:
	@scripts/setup.sh build test all
	scripts/test.sh all $(SHARE)

race:
	@scripts/setup.sh build race
	scripts/race.sh $(ARGS)

race-test:
	@scripts/setup.sh build race
	scripts/race.sh --test

clean:
	cargo clean
