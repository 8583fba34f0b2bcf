# go-redis. PORT names the server, CACHE a directory to build in.
set -eu
version=v9.23.0
here=$(cd "$(dirname "$0")" && pwd)
command -v go >/dev/null || { echo "there is no go"; exit 77; }
dir=$CACHE/$version
mkdir -p "$dir"
if ! cmp -s "$here/go/client.go" "$dir/client.go" || [ ! -x "$dir/client" ]; then
    cp "$here/go/client.go" "$dir/client.go"
    cd "$dir"
    rm -f client
    [ -e go.mod ] || go mod init stillframe.test/client
    go get "github.com/redis/go-redis/v9@$version" || { echo "go-redis $version cannot be fetched"; exit 77; }
    go mod tidy
    go build -o client .
fi
exec "$dir/client"
