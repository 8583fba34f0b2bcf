# Bull, the queue of before BullMQ. PORT names the server, CACHE a directory to install into.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
run_node bull bull@4.16.5
