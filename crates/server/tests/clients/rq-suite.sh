# RQ's own tests, the slow ones too. PORT names the server, CACHE a directory to install into.
set -eu
version=2.12.0
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
need python3 tar
with_tests() {
    from_pip "rq==$version" redis==8.1.0 click==8.5.1 croniter==7.0.0 pytest==8.4.2 pytest-timeout==2.4.0 \
        psutil==7.2.2 hatchling==1.27.0 &&
        ./bin/pip download -q --no-deps --no-build-isolation --no-binary :all: "rq==$version" &&
        tar xzf "rq-$version.tar.gz" && mv "rq-$version/tests" tests && rm -rf "rq-$version" || return 1
    # They take the server to be where it is if nothing is said.
    port='__import__("os").environ["PORT"]'
    sed -i -e "s/127\.0\.0\.1:6379/127.0.0.1:{$port}/" -e "s/'port'\], 6379/'port'], int($port)/" tests/*.py
    sed -i -E "s/('REDIS_PORT', |^ +port(: int)? ?= ?)6379/\1int($port)/" lib/python3*/site-packages/rq/cli/helpers.py \
        lib/python3*/site-packages/redis/client.py lib/python3*/site-packages/redis/connection.py
}
install "$CACHE/$version" with_tests
export PYTHONDONTWRITEBYTECODE=1 RUN_SLOW_TESTS_TOO=1
cd "$CACHE/$version"
PATH=$PWD/bin:$PATH
# Left out: it looks at once whether a killed process is gone, which it is when the machine's first process has reaped it.
tests() {
    python -m pytest -q -W ignore --timeout 120 -o cache_dir="$PWD/last" "$@" \
        --deselect tests/test_worker.py::WorkerShutdownTestCase::test_work_horse_force_death tests
}
# Many sleep for a time in which something should have come about. What fails is tried once more.
tests || tests --last-failed --last-failed-no-failures none
