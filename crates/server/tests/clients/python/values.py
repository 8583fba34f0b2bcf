"""A script of each type with redis-py. `r` is a client, `other` a second one with the same options."""

import threading
import time

import redis


def in_background(function, *arguments, **options):
    """Starts a call that is going to wait; what is returned joins it and gives its result."""
    result = []
    thread = threading.Thread(target=lambda: result.append(function(*arguments, **options)))
    thread.start()

    def join():
        thread.join(10)
        assert not thread.is_alive(), f"{function.__name__} still waits"
        return result[0]

    return join


def wait_for_blocked(r, count):
    for _ in range(500):
        if r.info("clients")["blocked_clients"] == count:
            return
        time.sleep(0.01)
    raise AssertionError(f"there never were {count} blocked clients")


def pairs(reply):
    """Members with scores: some replies come flat in RESP2, and scores as text."""
    if reply and not isinstance(reply[0], (list, tuple)):
        reply = zip(reply[::2], reply[1::2])
    return [(member, float(score)) for member, score in reply]


def hashes(r):
    assert r.hset("h", "a", 1) == 1
    assert r.hset("h", mapping={"a": 2, "b": "x", "c": 1.5}) == 2
    assert r.hget("h", "a") == b"2" and r.hget("h", "missing") is None
    assert r.hmget("h", "a", "missing", "b") == [b"2", None, b"x"]
    assert r.hgetall("h") == {b"a": b"2", b"b": b"x", b"c": b"1.5"}
    assert r.hgetall("missing") == {}
    assert r.hincrby("h", "a", 40) == 42 and r.hincrbyfloat("h", "c", 0.25) == 1.75
    assert r.hexists("h", "b") is True and r.hexists("h", "missing") is False
    assert r.hlen("h") == 3 and r.hstrlen("h", "b") == 1
    assert sorted(r.hkeys("h")) == [b"a", b"b", b"c"] and sorted(r.hvals("h")) == [b"1.75", b"42", b"x"]
    assert r.hsetnx("h", "a", 9) in (0, False) and r.hdel("h", "b", "missing") == 1
    assert r.hrandfield("h") in (b"a", b"c")
    assert sorted(r.hrandfield("h", 5)) == [b"a", b"c"]
    assert sorted(pairs(r.hrandfield("h", 5, withvalues=True))) == [(b"a", 42), (b"c", 1.75)]
    large = {f"field:{i}": f"value:{i}" for i in range(2000)}
    assert r.hset("large", mapping=large) == 2000
    assert r.object("encoding", "h") == b"listpack" and r.object("encoding", "large") == b"hashtable"
    assert {k.decode(): v.decode() for k, v in r.hscan_iter("large", count=50)} == large
    assert len(list(r.hscan_iter("large", match="field:1?", count=200))) == 10
    try:
        r.lpush("h", 1)
        raise AssertionError("a list command took a hash")
    except redis.ResponseError as error:
        assert "WRONGTYPE" in str(error) or "wrong kind of value" in str(error), error


def field_deadlines(r):
    r.hset("d", mapping={"a": 1, "b": 2, "c": 3})
    assert r.hexpire("d", 100, "a", "missing") == [1, -2]
    assert r.hpexpire("d", 50, "b") == [1]
    now = int(time.time())
    assert r.hexpireat("d", now + 200, "c", nx=True) == [1]
    assert r.hexpireat("d", now + 300, "c", nx=True) == [0]
    a, c, missing = r.httl("d", "a", "c", "missing")
    assert 90 <= a <= 100 and 190 <= c <= 200 and missing == -2
    assert r.hexpiretime("d", "c") == [now + 200] and r.hpexpiretime("d", "c") == [(now + 200) * 1000]
    assert 90_000 <= r.hpttl("d", "a")[0] <= 100_000
    assert r.hpersist("d", "a", "a") == [1, -1]
    time.sleep(0.1)
    assert r.hget("d", "b") is None and r.hgetall("d") == {b"a": b"1", b"c": b"3"}
    assert r.hsetex("d", "e", 5, ex=100) == 1 and r.httl("d", "e")[0] > 90
    assert r.hgetex("d", "e", persist=True) == [b"5"] and r.httl("d", "e") == [-1]
    assert r.hgetdel("d", "e", "missing") == [b"5", None] and r.hexists("d", "e") is False


def lists(r, other):
    assert r.rpush("l", "a", "b", "c") == 3 and r.lpush("l", "z") == 4
    assert r.lrange("l", 0, -1) == [b"z", b"a", b"b", b"c"]
    assert r.lpop("l") == b"z" and r.rpop("l") == b"c" and r.lpop("missing") is None
    assert r.linsert("l", "BEFORE", "b", "between") == 3
    assert r.lindex("l", 1) == b"between" and r.lindex("l", 9) is None
    assert r.lset("l", 0, "A") in (True, b"OK") and r.lrem("l", 1, "between") == 1 and r.llen("l") == 2
    assert r.lpos("l", "b") == 1 and r.lpos("l", "missing") is None
    assert r.rpush("l", *range(10)) == 12 and r.lpop("l", 2) == [b"A", b"b"]
    assert r.ltrim("l", 2, -3) in (True, b"OK") and r.lrange("l", 0, -1) == [b"2", b"3", b"4", b"5", b"6", b"7"]
    assert r.lmove("l", "l2", "LEFT", "RIGHT") == b"2" and r.rpoplpush("l", "l2") == b"7"
    assert r.lmpop(2, "missing", "l", direction="LEFT", count=2) == [b"l", [b"3", b"4"]]
    assert r.rpush("numbers", 3, 1, 2) == 3 and r.sort("numbers", desc=True) == [b"3", b"2", b"1"]
    assert r.rpushx("missing", 1) == 0

    assert list(r.blpop(["l", "l2"], 1)) == [b"l", b"5"]
    assert r.blpop("nothing", 0.05) is None
    popped = in_background(other.blpop, ["w1", "w2"], timeout=10)
    wait_for_blocked(r, 1)
    assert r.rpush("w2", "first", "second") == 2
    assert list(popped()) == [b"w2", b"first"] and r.lrange("w2", 0, -1) == [b"second"]
    for wait, expected in (
        (lambda: other.brpop(["w1"], timeout=10), [b"w1", b"job"]),
        (lambda: other.blmove("w1", "done", 10), b"job"),
        (lambda: other.brpoplpush("w1", "done", 10), b"job"),
        (lambda: other.blmpop(10, 1, "w1", direction="LEFT"), [b"w1", [b"job"]]),
    ):
        waiting = in_background(wait)
        wait_for_blocked(r, 1)
        r.rpush("w1", "job")
        got = waiting()
        assert (list(got) if isinstance(got, tuple) else got) == expected
    assert r.lrange("done", 0, -1) == [b"job", b"job"] and r.exists("w1") == 0
    waiting = in_background(other.blpop, ["w1"], timeout=0)
    wait_for_blocked(r, 1)
    blocked = [c["id"] for c in r.client_list() if c["cmd"] == "blpop"]
    assert r.client_unblock(int(blocked[0])) in (1, True) and waiting() is None


def sets(r):
    assert r.sadd("s", "a", "b", "c") == 3 and r.sadd("s", "a", "d") == 1
    assert r.smembers("s") == {b"a", b"b", b"c", b"d"} and r.smembers("missing") == set()
    assert r.scard("s") == 4 and r.sismember("s", "a") in (1, True) and not r.sismember("s", "x")
    assert r.smismember("s", ["a", "x"]) == [1, 0]
    assert r.sadd("t", "c", "d", "e") == 3
    assert r.sinter("s", "t") == {b"c", b"d"} and r.sunion("s", "t") == {b"a", b"b", b"c", b"d", b"e"}
    assert r.sdiff("s", "t") == {b"a", b"b"} and r.sintercard(2, ["s", "t"], limit=1) == 1
    assert r.sinterstore("to", "s", "t") == 2 and r.sunionstore("to", "s", "t") == 5 and r.sdiffstore("to", "s", "t") == 2
    assert r.smembers("to") == {b"a", b"b"}
    assert r.smove("s", "t", "a") in (1, True) and r.srem("s", "b", "x") == 1
    assert r.srandmember("s") in (b"c", b"d") and set(r.srandmember("s", 5)) == {b"c", b"d"}
    assert set(r.spop("t", 10)) == {b"a", b"c", b"d", b"e"} and r.spop("t") is None
    assert r.sadd("ints", *range(100)) == 100 and r.object("encoding", "ints") == b"intset"
    assert r.sadd("large", *(f"m:{i}" for i in range(2000))) == 2000
    assert {m.decode() for m in r.sscan_iter("large", count=50)} == {f"m:{i}" for i in range(2000)}
    assert len(list(r.sscan_iter("large", match="m:1??", count=200))) == 100


def sorted_sets(r, other):
    assert r.zadd("z", {"a": 1, "b": 2.5, "c": 3}) == 3
    assert r.zadd("z", {"a": 5}, nx=True) == 0 and r.zadd("z", {"a": 0.5}, gt=True, ch=True) == 0
    assert r.zadd("z", {"a": 1.5}, xx=True, ch=True) == 1
    assert r.zincrby("z", 0.5, "a") == 2.0 and r.zscore("z", "a") == 2.0 and r.zscore("z", "x") is None
    assert r.zadd("z", {"a": -1}, incr=True) == 1.0
    assert r.zmscore("z", ["a", "x", "b"]) == [1.0, None, 2.5]
    assert r.zrange("z", 0, -1) == [b"a", b"b", b"c"]
    assert pairs(r.zrange("z", 0, -1, withscores=True)) == [(b"a", 1), (b"b", 2.5), (b"c", 3)]
    assert pairs(r.zrange("z", 0, 0, desc=True, withscores=True)) == [(b"c", 3)]
    assert r.zrange("z", 1, "(3", byscore=True) == [b"a", b"b"]
    assert r.zrangebyscore("z", "-inf", "+inf", start=1, num=1) == [b"b"]
    assert pairs(r.zrevrangebyscore("z", 3, 2, withscores=True)) == [(b"c", 3), (b"b", 2.5)]
    assert r.zrank("z", "c") == 2 and r.zrevrank("z", "c") == 0 and r.zrank("z", "x") is None
    rank = r.zrank("z", "b", withscore=True)
    assert [int(rank[0]), float(rank[1])] == [1, 2.5], rank
    assert r.zcard("z") == 3 and r.zcount("z", 2, 3) == 2 and r.zrem("z", "c", "x") == 1
    assert r.zadd("lex", dict.fromkeys("abcde", 0)) == 5
    assert r.zrangebylex("lex", "[b", "(d") == [b"b", b"c"] and r.zlexcount("lex", "-", "+") == 5
    assert r.zrevrangebylex("lex", "+", "[d") == [b"e", b"d"] and r.zremrangebylex("lex", "-", "[a") == 1
    assert r.zadd("y", {"b": 10, "d": 4}) == 2
    assert r.zunionstore("to", ["z", "y"]) == 3 and r.zscore("to", "b") == 12.5
    assert r.zinterstore("to", {"z": 2, "y": 1}, aggregate="MAX") == 1 and r.zscore("to", "b") == 10
    assert r.zdiffstore("to", ["z", "y"]) == 1 and r.zinter(["z", "y"]) == [b"b"]
    assert pairs(r.zunion(["z", "y"], withscores=True)) == [(b"a", 1), (b"d", 4), (b"b", 12.5)]
    assert pairs(r.zdiff(["z", "y"], withscores=True)) == [(b"a", 1)] and r.zintercard(2, ["z", "y"]) == 1
    assert r.zrangestore("to", "z", 0, 0) == 1 and r.zrange("to", 0, -1) == [b"a"]
    assert pairs(r.zpopmin("y")) == [(b"d", 4)] and pairs(r.zpopmax("y", 2)) == [(b"b", 10)] and r.zpopmin("y") == []
    assert r.zrandmember("z") in (b"a", b"b") and sorted(r.zrandmember("z", 5)) == [b"a", b"b"]
    name, popped = r.zmpop(1, ["z"], min=True)
    assert name == b"z" and pairs(popped) == [(b"a", 1)]
    large = {f"m:{i}": i / 2 for i in range(2000)}
    assert r.zadd("large", large) == 2000 and r.zadd("large", {"top": "+inf"}) == 1
    assert r.zscore("large", "top") == float("inf") and r.zremrangebyrank("large", -1, -1) == 1
    assert {m.decode(): s for m, s in r.zscan_iter("large", count=50)} == large
    assert r.zremrangebyscore("large", 10, 19.5) == 20 and r.zrank("large", "m:40") == 20

    for wait, expected in (
        (lambda: other.bzpopmin(["w1", "w2"], timeout=10), [b"w2", b"m", 1.5]),
        (lambda: other.bzpopmax("w2", timeout=10), [b"w2", b"m", 1.5]),
        (lambda: other.bzmpop(10, 1, ["w2"], min=True), [b"w2", [[b"m", 1.5]]]),
    ):
        waiting = in_background(wait)
        wait_for_blocked(r, 1)
        r.zadd("w2", {"m": 1.5})
        got = waiting()
        if isinstance(got[1], list):
            got = [got[0], [[m, float(s)] for m, s in got[1]]]
        assert list(got) == expected, got
    assert r.bzpopmin("nothing", timeout=0.05) is None


def hyperloglogs(r):
    assert r.pfadd("p", *range(1000)) == 1 and r.pfadd("p", 1) == 0
    assert 970 < r.pfcount("p") < 1030
    assert r.pfadd("q", *range(1000, 2000)) == 1 and 1940 < r.pfcount("p", "q") < 2060
    assert r.pfmerge("pq", "p", "q") in (True, b"OK") and 1940 < r.pfcount("pq") < 2060
    assert r.get("p").startswith(b"HYLL")


def every_type(r, other):
    for script in (hashes, field_deadlines, sets, hyperloglogs):
        r.flushall()
        script(r)
    for script in (lists, sorted_sets):
        r.flushall()
        script(r, other)
    r.delete("h")
    assert r.hset("h", mapping={"f": 1}) and r.sadd("s", 1) and r.rpush("l", 1) and r.zadd("z", {"m": 1}) and r.set("k", 1)
    for name in ("string", "hash", "list", "set", "zset"):
        for key in r.scan_iter(_type=name):
            assert r.type(key) == name.encode()
            payload = r.dump(key)
            r.restore(b"copy:" + key, 0, payload)
            assert r.dump(b"copy:" + key) == payload
    assert r.type("copy:h") == b"hash" and r.lrange("copy:l", 0, -1) == [b"1"] and r.zscore("copy:z", "m") == 1
