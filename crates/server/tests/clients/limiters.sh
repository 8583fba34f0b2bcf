# Limiters: limits for Python, rate-limiter-flexible for Node. PORT names the server, CACHE a directory to install into.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
need python3
export PYTHONDONTWRITEBYTECODE=1
install "$CACHE/limits-5.8.0" from_pip limits==5.8.0 redis==8.1.0
"$CACHE/limits-5.8.0/bin/python" "$here/limiters/client.py"
run_node limiters rate-limiter-flexible@11.4.0 ioredis@6.0.0
