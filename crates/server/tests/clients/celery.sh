# Celery with kombu's transport. PORT names the server, CACHE a directory to install into.
#
# Celery 5.7 and kombu 5.7 have Lua scripts of their own: for chords, for the queues of remote control and of gossip. Those of
# before take the locks of redis-py.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
need python3
export PYTHONDONTWRITEBYTECODE=1
cd "$here/celery"
run() { # of Celery, kombu, redis-py
    install "$CACHE/$1" from_pip "celery==$1" "kombu==$2" "redis==$3" packaging
    "$CACHE/$1/bin/python" client.py
}
run 5.6.3 5.6.2 6.4.0
run 5.7.0 5.7.0 6.4.0
