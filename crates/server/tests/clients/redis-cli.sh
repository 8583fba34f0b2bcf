# redis-cli, as a person and a script use it. PORT names the server.
set -eu
command -v redis-cli >/dev/null || { echo "redis-cli is not installed"; exit 77; }

is() { # expected, then the arguments of redis-cli
    expected=$1
    shift
    got=$(redis-cli -p "$PORT" "$@")
    [ "$got" = "$expected" ] || { echo "redis-cli $*: expected '$expected', got '$got'"; exit 1; }
}

is OK FLUSHALL
is OK SET greeting "hello world"
is "hello world" GET greeting
is '"hello world"' --no-raw GET greeting
is "(nil)" --no-raw GET missing
is "(integer) 1" --no-raw EXISTS greeting
is "hello world" -3 GET greeting
is "" -n 3 GET greeting
is OK -x SET piped <<END
from stdin
END
is "from stdin" GET piped
is "1" -r 1 INCR counter
is "ERR unknown command 'nosuch', with args beginning with: " nosuch
is "PONG" --user default --pass "" PING 2>/dev/null || is PONG PING

printf 'SET a 1\nMULTI\nINCR a\nGET a\nEXEC\n' | redis-cli -p "$PORT" >/dev/null
is 2 GET a

i=0
while [ $i -lt 1000 ]; do
    printf '*3\r\n$3\r\nSET\r\n$%d\r\nmass:%d\r\n$1\r\nv\r\n' $((5 + ${#i})) $i
    i=$((i + 1))
done | redis-cli -p "$PORT" --pipe | grep -q 'errors: 0, replies: 1000'

[ "$(redis-cli -p "$PORT" --scan --pattern 'mass:*' | sort -u | wc -l)" = 1000 ]
redis-cli -p "$PORT" --bigkeys -i 0 | grep -q '1004 strings'
redis-cli -p "$PORT" --memkeys -i 0 | grep -q 'Sampled 1004 keys'
is 3 RPUSH list a b c
is 2 HSET hash f 1 g 2
is 4 SADD set a b c d
is 2 ZADD zset 1 a 2.5 b
for line in "1 lists with 3 items" "1 hashs with 2 fields" "1 sets with 4 members" "1 zsets with 2 members"; do
    redis-cli -p "$PORT" --bigkeys -i 0 | grep -q "^$line"
done
is '1) "b"
2) "2.5"' --no-raw ZRANGE zset -1 -1 WITHSCORES
is '1) 1) "b"
   2) (double) 2.5' -3 --no-raw ZRANGE zset -1 -1 WITHSCORES
redis-cli -p "$PORT" --csv MGET a piped | grep -q '^"2","from stdin'
redis-cli -p "$PORT" --stat -i 0.01 2>/dev/null | head -n 3 | grep -q keys
redis-cli -p "$PORT" --latency -i 1 --raw | grep -q '^0 '
redis-cli -p "$PORT" INFO server | grep -q redis_version
redis-cli -p "$PORT" CONFIG GET maxmemory | grep -q maxmemory
printf 'PING\r\n' | timeout 5 redis-cli -p "$PORT" | grep -q PONG
redis-cli --version
