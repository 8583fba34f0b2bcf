# Lettuce. PORT names the server, CACHE a directory to build in.
set -eu
version=7.7.0
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
need java javac mvn
dir=$CACHE/$version
install "$dir" from_maven io.lettuce lettuce-core "$version.RELEASE"
javac -cp "$dir/lib/*" -d "$dir" "$here"/java/*.java "$here"/lettuce/*.java
java -cp "$dir:$dir/lib/*" Client
echo "Lettuce $version"
