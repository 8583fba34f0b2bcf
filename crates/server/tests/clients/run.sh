#!/bin/sh
# Real clients, with their defaults, against a server.
#
#   run.sh path/to/server [client...]
#
# Clients that are not there are installed into a cache (STILLFRAME_CLIENT_CACHE, by default
# ~/.cache/stillframe-clients). One whose toolchain is missing, or that cannot be installed because the registry is
# out of reach, is skipped, and says so.
set -u
server=$(command -v "$1") || { echo "run.sh: no such server: $1" >&2; exit 2; }
shift
here=$(cd "$(dirname "$0")" && pwd)
cache=${STILLFRAME_CLIENT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stillframe-clients}
dir=$(mktemp -d)
pid=
trap 'kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

port=$((20000 + $$ % 20000))
start() {
    "$server" --port "$port" --dir "$dir" --save "" >"$dir/log" 2>&1 &
    pid=$!
    for _ in 1 2 3 4 5 6 7 8 9 10 20 30 40 50; do
        kill -0 "$pid" 2>/dev/null || return 1
        [ "$(redis-cli -p "$port" PING 2>/dev/null)" = PONG ] && return 0
        sleep 0.1
    done
    return 1
}
until start; do
    kill "$pid" 2>/dev/null
    port=$((port + 1))
    if [ $((port % 10)) = 0 ]; then
        echo "run.sh: the server does not start:" >&2
        cat "$dir/log" >&2
        exit 1
    fi
done

failed=0
for client in ${*:-redis-cli redis-benchmark python node ioredis go jedis lettuce celery rq rq-suite redis-py go-redis asynq sidekiq bull bullmq limiters redisson}; do
    # 0: works, 77: cannot be tried here, else: does not work.
    PORT=$port CACHE=$cache/$client timeout 600 sh "$here/$client.sh" >"$dir/out" 2>&1
    case $? in
        0) echo "ok       $client: $(tail -n 1 "$dir/out")" ;;
        77) echo "SKIPPED  $client: $(tail -n 1 "$dir/out")" ;;
        *)
            echo "FAILED   $client:"
            sed 's/^/    /' "$dir/out"
            failed=1
            ;;
    esac
    if ! kill -0 "$pid" 2>/dev/null; then
        echo "FAILED   the server is gone:"
        sed 's/^/    /' "$dir/log"
        exit 1
    fi
done
exit $failed
