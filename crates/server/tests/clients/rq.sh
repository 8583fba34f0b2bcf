# RQ. PORT names the server, CACHE a directory to install into.
#
# The last version that keeps no results in streams, the last of 1, and those of now.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
need python3
export PYTHONDONTWRITEBYTECODE=1
cd "$here/rq"
for version in 1.11.1 1.16.2 2.6.1 3.0.0; do
    install "$CACHE/$version" from_pip "rq==$version" redis==5.2.1 click==8.1.8
    "$CACHE/$version/bin/python" client.py
done
