# Lettuce. PORT names the server, CACHE a directory to build in.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
run_java io.lettuce lettuce-core 7.7.0.RELEASE lettuce
