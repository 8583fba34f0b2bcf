# ioredis. PORT names the server, CACHE a directory to install into.
set -eu
version=6.0.0
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
need node npm
install "$CACHE/$version" from_npm "ioredis@$version"
# Modules are looked for next to the script.
cp "$here"/ioredis/*.mjs "$CACHE/$version"
cd "$CACHE/$version"
exec node client.mjs
