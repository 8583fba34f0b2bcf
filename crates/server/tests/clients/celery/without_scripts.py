"""For a server without Lua: kombu's transport takes a lock of redis-py, which is released by a script.

Import this where the application is made. Here a transaction on the watched key does the same.
"""

from redis.exceptions import LockNotOwnedError
from redis.lock import Lock


def do_release(lock, expected_token):
    def release(transaction):
        if transaction.get(lock.name) != expected_token:
            raise LockNotOwnedError("the lock has another owner, or none any more")
        transaction.multi()
        transaction.delete(lock.name)

    lock.redis.transaction(release, lock.name)


Lock.do_release = do_release
