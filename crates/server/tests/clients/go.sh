# go-redis. PORT names the server, CACHE a directory to build in.
set -eu
version=v9.23.0
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
need go
dir=$CACHE/$version
from_go() {
    cp "$here"/go/*.go .
    go mod init stillframe.test/client
    go get "github.com/redis/go-redis/v9@$version" && go mod tidy
}
install "$dir" from_go
cp "$here"/go/*.go "$dir"
cd "$dir"
go build -o client .
exec ./client
