# Jedis. PORT names the server, CACHE a directory to build in.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
run_java redis.clients jedis 8.0.2 jedis
