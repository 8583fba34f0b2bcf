# node-redis. PORT names the server, CACHE a directory to install into.
set -eu
version=6.3.1
here=$(cd "$(dirname "$0")" && pwd)
command -v node >/dev/null && command -v npm >/dev/null || { echo "there is no node with npm"; exit 77; }
dir=$CACHE/$version
if [ ! -e "$dir/ready" ]; then
    rm -rf "$dir"
    mkdir -p "$dir"
    echo '{"private": true}' >"$dir/package.json"
    (cd "$dir" && npm install --silent --no-audit --no-fund "redis@$version") ||
        { echo "node-redis $version cannot be installed"; exit 77; }
    touch "$dir/ready"
fi
# Modules are looked for next to the script.
cp "$here/node/client.mjs" "$dir/client.mjs"
cd "$dir"
exec node client.mjs
