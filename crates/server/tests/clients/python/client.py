"""redis-py with its defaults, in both protocols, blocking and asyncio."""

import asyncio
import os

import redis
from messages import all_messages
from scripts import all_scripts
from values import every_type, in_background

PORT = int(os.environ["PORT"])


def strings(r):
    r.flushall()
    assert r.set("k", "v") is True
    assert r.get("k") == b"v"
    assert r.get("missing") is None
    assert r.set("k", "other", nx=True) is None
    assert r.set("k", "new", get=True) == b"v"
    assert r.set("t", 1, ex=100) is True and 0 < r.ttl("t") <= 100
    assert r.incrby("n", 41) == 41 and r.incr("n") == 42
    assert r.incrbyfloat("f", 1.5) == 1.5
    assert r.mset({"a": 1, "b": 2}) is True
    assert r.mget("a", "b", "missing") == [b"1", b"2", None]
    assert r.append("k", "!") == 4 and r.getrange("k", 0, -2) == b"new"
    assert r.setbit("bits", 7, 1) == 0 and r.bitcount("bits") == 1
    assert r.bitfield("bits").set("u8", 0, 255).get("u4", 4).execute() == [1, 15]
    binary = bytes(range(256)) * 5000
    assert r.set("binary", binary) and r.get("binary") == binary


def keys(r):
    assert r.exists("a", "b", "missing") == 2
    assert r.type("a") == b"string" and r.type("missing") == b"none"
    assert r.rename("a", "c") is True and r.delete("c", "missing") == 1
    assert r.expire("b", 100) and r.persist("b")
    assert r.copy("b", "b2") and r.unlink("b2") == 1
    payload = r.dump("k")
    assert r.restore("k2", 0, payload) in (True, b"OK") and r.get("k2") == r.get("k")
    r.mset({f"scan:{i}": i for i in range(500)})
    assert len(set(r.scan_iter("scan:*", count=50))) == 500
    assert len(r.keys("scan:*")) == 500
    assert r.randomkey() is not None
    assert r.object("encoding", "n") == b"int"
    assert r.memory_usage("k") > 0


def transactions(r):
    with r.pipeline() as p:
        assert p.set("x", 1).incr("x").get("x").execute() == [True, 2, b"2"]
    with r.pipeline(transaction=False) as p:
        for i in range(1000):
            p.set(f"p:{i}", i)
        assert all(p.execute())
    with r.pipeline() as p:
        p.watch("x")
        r.set("x", 7)
        p.multi()
        p.incr("x")
        try:
            p.execute()
            raise AssertionError("the transaction ran although its key had changed")
        except redis.WatchError:
            pass
    assert r.get("x") == b"7"
    with r.pipeline() as p:
        p.hset("h", mapping={"a": 1, "b": 2}).hgetall("h").rpush("l", 1, 2).lrange("l", 0, -1)
        p.sadd("s", "m").smembers("s").zadd("z", {"m": 1.5}).zrange("z", 0, -1, withscores=True).zscore("z", "m")
        results = p.execute()
    results[7] = [tuple(pair) for pair in results[7]]
    assert results == [2, {b"a": b"1", b"b": b"2"}, 2, [b"1", b"2"], 1, {b"m"}, 1, [(b"m", 1.5)], 1.5], results
    with r.pipeline() as p:
        try:
            p.incr("h").incr("x").execute()
            raise AssertionError("INCR of a hash was answered")
        except redis.ResponseError as error:
            assert "wrong kind of value" in str(error)
    assert r.get("x") == b"8"
    with r.pipeline() as p:
        assert p.blpop("nothing", 0).execute() == [None]
    assert r.transaction(lambda p: p.multi() or p.incrby("x", 2), "x") == [10]


def server(r):
    assert r.ping() is True
    assert r.echo("hello") == b"hello"
    info = r.info()
    assert info["redis_version"] and info["db0"]["keys"] > 0
    assert "maxmemory" in r.config_get("maxmemory*")
    assert r.client_id() > 0
    assert r.client_setname("tester") and r.client_getname() in ("tester", b"tester")
    assert any(c["name"] == "tester" for c in r.client_list())
    assert r.client_info()["id"] == r.client_id()
    assert r.command_count() > 80
    assert "get" in r.command()
    assert r.dbsize() > 0
    assert isinstance(r.time()[0], int)
    assert isinstance(r.slowlog_get(), list)
    try:
        r.execute_command("NOSUCH")
        raise AssertionError("an unknown command was answered")
    except redis.ResponseError as error:
        assert "unknown command" in str(error)


async def asynchronous():
    async with redis.asyncio.Redis(port=PORT) as r:
        await asyncio.gather(*(r.set(f"async:{i}", i) for i in range(50)))
        assert await r.get("async:49") == b"49"
        async with r.pipeline(transaction=True) as p:
            assert await p.incr("async:0").get("async:0").execute() == [1, b"1"]
        waiting = [asyncio.create_task(r.blpop(["async:l"], timeout=10)) for _ in range(3)]
        await asyncio.sleep(0.1)
        assert await r.rpush("async:l", *range(3)) == 3
        assert sorted(value for _, value in await asyncio.gather(*waiting)) == [b"0", b"1", b"2"]
        await r.hset("async:h", mapping={f"f{i}": i for i in range(1000)})
        assert len({field async for field, _ in r.hscan_iter("async:h")}) == 1000
        async with r.pubsub(ignore_subscribe_messages=True) as subscriber:
            await subscriber.psubscribe("async*")
            await subscriber.get_message(timeout=5)
            assert await r.publish("async:news", "hello") == 1
            assert (await subscriber.get_message(timeout=5))["data"] == b"hello"


def decoded():
    """Strings instead of bytes."""
    text = redis.Redis.from_url(f"redis://localhost:{PORT}/1", decode_responses=True)
    text.flushdb()
    assert text.set("k", "ü") and text.get("k") == "ü"
    assert text.hset("h", mapping={"ä": "ö"}) == 1 and text.hgetall("h") == {"ä": "ö"}
    assert text.zadd("z", {"é": 1.5}) == 1 and [tuple(x) for x in text.zrange("z", 0, -1, withscores=True)] == [("é", 1.5)]
    waiting = in_background(text.blpop, ["l"], timeout=10)
    assert text.rpush("l", "ñ") == 1 and tuple(waiting()) == ("l", "ñ")
    text.close()


for options in ({}, {"protocol": 3}, {"protocol": 2}):
    client = redis.Redis(port=PORT, **options)
    strings(client)
    keys(client)
    transactions(client)
    server(client)
    every_type(client, redis.Redis(port=PORT, **options))
    all_messages(client)
    all_scripts(client)
    client.close()
decoded()
asyncio.run(asynchronous())
print("redis-py", redis.__version__)
