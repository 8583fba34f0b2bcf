# redis-py's own tests of scripts, functions, locks and streams. PORT names the server, CACHE a directory to install
# into.
set -eu
version=8.1.0
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
need python3 tar
with_tests() {
    from_pip "redis==$version" pytest==8.4.2 pytest-asyncio==1.2.0 mock==5.2.0 coverage==7.11.0 &&
        ./bin/pip download -q --no-deps --no-binary :all: "redis==$version" && tar xzf "redis-$version.tar.gz"
}
install "$CACHE/$version" with_tests
export PYTHONDONTWRITEBYTECODE=1
cd "$CACHE/$version/redis-$version"
tests() {
    ../bin/python -m pytest -q -p no:cacheprovider -m "not onlycluster" "--redis-url=redis://localhost:$PORT/9" "$@"
}
tests tests/test_scripting.py tests/test_lock.py tests/test_function.py \
    tests/test_asyncio/test_scripting.py tests/test_asyncio/test_lock.py
# Streams, in both protocols. What came after 7.0 is skipped by the version that the server tells. The one that is left
# out expects the lag of later versions: 7.0 tells -6, too.
for protocol in 2 3; do
    tests "--protocol=$protocol" tests/test_commands.py tests/test_asyncio/test_commands.py \
        -k "(test_x or xread) and not test_xgroup_create_entriesread"
done
