# node-redis. PORT names the server, CACHE a directory to install into.
set -eu
version=6.3.1
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
need node npm
install "$CACHE/$version" from_npm "redis@$version"
# Modules are looked for next to the script.
cp "$here"/node/*.mjs "$CACHE/$version"
cd "$CACHE/$version"
exec node client.mjs
