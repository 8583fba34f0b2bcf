# Jedis. PORT names the server, CACHE a directory to build in.
set -eu
version=8.0.2
here=$(cd "$(dirname "$0")" && pwd)
for tool in java javac mvn; do
    command -v $tool >/dev/null || { echo "there is no $tool"; exit 77; }
done
dir=$CACHE/$version
mkdir -p "$dir"
if [ ! -e "$dir/ready" ]; then
    sed "s/VERSION/$version/" "$here/jedis/pom.xml" >"$dir/pom.xml"
    (cd "$dir" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib) ||
        { echo "Jedis $version cannot be fetched"; exit 77; }
    touch "$dir/ready"
fi
javac -cp "$dir/lib/*" -d "$dir" "$here/jedis/Client.java"
java -cp "$dir:$dir/lib/*" Client
echo "Jedis $version"
