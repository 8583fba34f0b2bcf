# Celery with kombu's transport. PORT names the server, CACHE a directory to install into.
#
# Celery 5.7 and kombu 5.7 have Lua scripts of their own: for chords, for the queues of remote control and of gossip. The
# versions here are the last that have none; what redis-py adds is in celery/without_scripts.py.
set -eu
version=5.6.3
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
need python3
install "$CACHE/$version" from_pip "celery==$version" kombu==5.6.2 redis==6.4.0
export PYTHONDONTWRITEBYTECODE=1
cd "$here/celery"
exec "$CACHE/$version/bin/python" client.py
