# RQ. PORT names the server, CACHE a directory to install into.
#
# RQ keeps results in streams, from 1.12 on if the server says that it is Redis 5 or later, from 2.0 on always. So here are
# the last version of before, as it is, and the last that may be told by a class of jobs not to use them.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
need python3
export PYTHONDONTWRITEBYTECODE=1
cd "$here/rq"
for version in 1.11.1 1.16.2; do
    install "$CACHE/$version" from_pip "rq==$version" redis==5.2.1 click==8.1.8
    "$CACHE/$version/bin/python" client.py
done
