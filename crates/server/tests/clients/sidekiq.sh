# Sidekiq, the distribution's. PORT names the server.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"
need ruby sidekiq
export REDIS_URL="redis://localhost:$PORT/5"
cd "$here/sidekiq"
exec ruby client.rb
