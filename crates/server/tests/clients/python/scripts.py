"""Scripts, locks and functions as redis-py uses them."""

import threading
import time

import redis

COUNT = """
local n = redis.call('INCRBY', KEYS[1], ARGV[1])
if n > tonumber(ARGV[2]) then return redis.error_reply('LIMIT reached') end
return n
"""

LIBRARY = """#!lua name=tested
redis.register_function('put', function(keys, args) return redis.call('SET', keys[1], args[1]) end)
redis.register_function{function_name='look', callback=function(keys) return redis.call('GET', keys[1]) end, flags={'no-writes'}}
"""


def registered(r):
    count = r.register_script(COUNT)
    r.delete("count")
    r.script_flush()
    assert count(keys=["count"], args=[2, 10]) == 2, "loaded when the server does not know it"
    assert count(keys=["count"], args=[3, 10]) == 5
    try:
        count(keys=["count"], args=[9, 10])
        raise AssertionError("an error of a script is a reply")
    except redis.ResponseError as error:
        assert "LIMIT reached" in str(error), error
    assert r.get("count") == b"14", "what was changed before stays"
    with r.pipeline() as pipe:
        pipe.set("count", 0)
        count(keys=["count"], args=[1, 10], client=pipe)
        count(keys=["count"], args=[1, 10], client=pipe)
        assert pipe.execute() == [True, 1, 2]
    assert r.script_exists(count.sha, "0" * 40) == [True, False]
    assert r.eval("return {1, 'two', false, {3}}", 0) == [1, b"two", None, [3]]
    assert r.eval_ro("return redis.call('GET', KEYS[1])", 1, "count") == b"2"


def locks(r):
    r.delete("lock")
    lock = r.lock("lock", timeout=10, thread_local=False)
    assert lock.acquire(blocking=False) and not r.lock("lock").acquire(blocking=False)
    assert lock.extend(20) and r.pttl("lock") > 20_000 and lock.reacquire() and r.pttl("lock") <= 10_000
    other = r.lock("lock", timeout=10, blocking_timeout=5)
    threading.Timer(0.2, lock.release).start()
    assert other.acquire(), "it was released meanwhile"
    other.release()
    assert r.exists("lock") == 0
    short = r.lock("lock", timeout=0.05)
    assert short.acquire()
    time.sleep(0.1)
    try:
        short.release()
        raise AssertionError("it is over")
    except redis.exceptions.LockNotOwnedError:
        pass


def functions(r):
    r.function_flush()
    assert r.function_load(LIBRARY) == b"tested"
    assert r.fcall("put", 1, "f", "v") == b"OK" and r.fcall_ro("look", 1, "f") == b"v"
    payload = r.function_dump()
    assert r.function_delete("tested") and r.function_restore(payload)
    assert len(r.function_list()) == 1 and r.fcall_ro("look", 1, "f") == b"v"
    assert r.function_flush()


def all_scripts(r):
    registered(r)
    locks(r)
    functions(r)
