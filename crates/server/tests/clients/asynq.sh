# asynq's own tests. PORT names the server, CACHE a directory to build in.
set -eu
version=v0.26.0
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
need go
dir=$CACHE/$version
with_tests() {
    GOFLAGS=-mod=mod go mod download "github.com/hibiken/asynq@$version" &&
        cp -r "$(go env GOMODCACHE)/github.com/hibiken/asynq@$version" asynq && chmod -R u+w asynq && cd asynq &&
        go test -c -o ../asynq.test .
}
install "$dir" with_tests
redis-cli -p "$PORT" FLUSHALL >/dev/null
cd "$dir/asynq"
../asynq.test -test.count=1 "-redis_addr=localhost:$PORT" -loglevel=fatal
# These name a server themselves.
sed -i -E "s/localhost:[0-9]+/localhost:$PORT/" internal/rdb/*_test.go
go test -count=1 ./internal/rdb
echo "asynq $version"
