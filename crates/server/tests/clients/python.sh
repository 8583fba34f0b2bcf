# redis-py. PORT names the server, CACHE a directory to install into.
set -eu
version=8.1.0
here=$(cd "$(dirname "$0")" && pwd)
command -v python3 >/dev/null || { echo "there is no python3"; exit 77; }
venv=$CACHE/$version
if [ ! -e "$venv/ready" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv" || { echo "python3 has no venv module"; exit 77; }
    "$venv/bin/pip" install -q "redis==$version" || { echo "redis-py $version cannot be installed"; exit 77; }
    touch "$venv/ready"
fi
exec "$venv/bin/python" "$here/python/client.py"
