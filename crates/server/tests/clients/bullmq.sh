# BullMQ, whose events are streams. PORT names the server, CACHE a directory to install into.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
run_node bullmq bullmq@5.81.5
