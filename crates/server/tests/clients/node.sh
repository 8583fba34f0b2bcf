# node-redis. PORT names the server, CACHE a directory to install into.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
run_node node redis@6.3.1
