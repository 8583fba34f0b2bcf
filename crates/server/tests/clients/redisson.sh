# Redisson. PORT names the server, CACHE a directory to build in.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
run_java org.redisson redisson 3.52.0 redisson
