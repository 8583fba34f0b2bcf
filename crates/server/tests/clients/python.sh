# redis-py. PORT names the server, CACHE a directory to install into.
set -eu
version=8.1.0
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
need python3
install "$CACHE/$version" from_pip "redis==$version"
export PYTHONDONTWRITEBYTECODE=1
exec "$CACHE/$version/bin/python" "$here/python/client.py"
