# go-redis's own tests of streams. PORT names the server, CACHE a directory to build in.
set -eu
version=v9.23.0
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
need go
dir=$CACHE/$version
with_tests() {
    GOFLAGS=-mod=mod go mod download "github.com/redis/go-redis/v9@$version" &&
        cp -r "$(go env GOMODCACHE)/github.com/redis/go-redis/v9@$version" go-redis && chmod -R u+w go-redis &&
        cd go-redis && sed -i 's/redisStackPort = "6379"/redisStackPort = os.Getenv("PORT")/' main_test.go &&
        go test -c -o ../go-redis.test .
}
install "$dir" with_tests
cd "$dir/go-redis"
# Without this one they want replicas, sentinels and a cluster, too.
export RE_CLUSTER=true
# What came later is skipped.
export REDIS_VERSION=7.0
# The client itself, and those of it that put the commands of many callers into pipelines.
for GOREDIS_TEST_SUBJECT in client ap-blocking ap-async ap-fd-blocking ap-fd; do
    export GOREDIS_TEST_SUBJECT
    ../go-redis.test -test.count=1 -test.run '^TestGinkgoSuite$' -ginkgo.no-color \
        -ginkgo.focus 'Commands streams ' >"$dir/out" 2>&1 || { cat "$dir/out"; exit 1; }
    # Where nothing is found, nothing fails.
    grep -o '[1-9][0-9]* Passed' "$dir/out" || { echo "no tests of streams"; exit 1; }
done
echo "go-redis $version"
