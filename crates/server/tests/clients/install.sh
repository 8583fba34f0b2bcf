# Sourced by the script of each client: installs exact versions into a directory, once. A client that cannot be had
# here ends the script with 77.

need() { # tools
    for tool in "$@"; do
        command -v "$tool" >/dev/null || { echo "there is no $tool"; exit 77; }
    done
}

# install DIRECTORY COMMAND... runs the command in a new directory, unless it has been done.
install() {
    directory=$1
    shift
    [ ! -e "$directory/ready" ] || return 0
    rm -rf "$directory"
    mkdir -p "$directory"
    (cd "$directory" && "$@") || { echo "cannot be installed: $*"; exit 77; }
    touch "$directory/ready"
}

from_pip() { # packages, with versions
    python3 -m venv . || { echo "python3 has no venv module"; return 1; }
    ./bin/pip install -q "$@"
}

from_npm() { # package@version
    echo '{"private": true}' >package.json
    npm install --silent --no-audit --no-fund "$@"
}

from_maven() { # group artifact version
    sed -e "s/GROUP/$1/" -e "s/ARTIFACT/$2/" -e "s/VERSION/$3/" "$here/java/pom.xml" >pom.xml
    mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib
}

run_java() { # group artifact version directory: the class Client there, with the classes that all clients in Java have
    need java javac mvn
    install "$CACHE/$3" from_maven "$1" "$2" "$3"
    javac -nowarn -cp "$CACHE/$3/lib/*" -d "$CACHE/$3" "$here"/java/*.java "$here/$4"/*.java
    java -cp "$CACHE/$3:$CACHE/$3/lib/*" Client
    echo "$2 $3"
}

run_node() { # directory package@version...: client.mjs there, beside the packages, where modules are looked for
    need node npm
    from=$1
    shift
    install "$CACHE/$1" from_npm "$@"
    cp "$here/$from"/*.mjs "$CACHE/$1"
    cd "$CACHE/$1" && node client.mjs
}
