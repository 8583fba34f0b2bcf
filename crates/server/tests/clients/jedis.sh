# Jedis. PORT names the server, CACHE a directory to build in.
set -eu
version=8.0.2
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
need java javac mvn
dir=$CACHE/$version
install "$dir" from_maven redis.clients jedis "$version"
javac -cp "$dir/lib/*" -d "$dir" "$here"/java/*.java "$here"/jedis/*.java
java -cp "$dir:$dir/lib/*" Client
echo "Jedis $version"
