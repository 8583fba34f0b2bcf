# redis-benchmark: its own tests. PORT names the server.
set -eu
command -v redis-benchmark >/dev/null || { echo "redis-benchmark is not installed"; exit 77; }

bench() {
    redis-benchmark -p "$PORT" -q "$@" | tr '\r' '\n' >"${TMPDIR:-/tmp}/sf-benchmark.$$"
    out=$(grep 'requests per second' "${TMPDIR:-/tmp}/sf-benchmark.$$" || true)
    ! grep -i error "${TMPDIR:-/tmp}/sf-benchmark.$$" || exit 1
    rm -f "${TMPDIR:-/tmp}/sf-benchmark.$$"
    [ -n "$out" ] || { echo "no result: redis-benchmark $*"; exit 1; }
    echo "$out"
}

bench -t ping,set,get,incr,mset -n 2000 -c 50
bench -t lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange -n 2000 -P 8 -r 1000
bench -t set,get -n 20000 -P 16 -r 1000 -d 100
bench -t set,get -n 2000 -3
bench -n 1000 -r 100 APPEND appended:__rand_int__ x
redis-benchmark -p "$PORT" -t get -n 1000 --csv | grep -q '"GET"'
[ "$(redis-cli -p "$PORT" GET key:000000000001 | wc -c)" -gt 100 ] || [ "$(redis-cli -p "$PORT" DBSIZE)" -gt 900 ]
redis-benchmark --version
