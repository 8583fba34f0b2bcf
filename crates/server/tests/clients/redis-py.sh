# redis-py's own tests of scripts, functions and locks. PORT names the server, CACHE a directory to install into.
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
exec ../bin/python -m pytest -q -p no:cacheprovider -m "not onlycluster" "--redis-url=redis://localhost:$PORT/9" \
    tests/test_scripting.py tests/test_lock.py tests/test_function.py \
    tests/test_asyncio/test_scripting.py tests/test_asyncio/test_lock.py
