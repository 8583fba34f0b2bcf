"""Publish and subscribe with redis-py, keyspace notifications with it."""

import time


def next_message(subscriber):
    for _ in range(100):
        message = subscriber.get_message(timeout=0.1)
        if message:
            return message["type"], message["pattern"], message["channel"], message["data"]
    raise AssertionError("no message came")


def channels(r):
    subscriber = r.pubsub()
    subscriber.subscribe("news", "sport")
    assert next_message(subscriber) == ("subscribe", None, b"news", 1)
    assert next_message(subscriber) == ("subscribe", None, b"sport", 2)
    subscriber.psubscribe("n?ws*")
    assert next_message(subscriber) == ("psubscribe", None, b"n?ws*", 3)
    assert r.publish("news", "hello") == 2 and r.publish("nobody", "x") == 0
    assert next_message(subscriber) == ("message", None, b"news", b"hello")
    assert next_message(subscriber) == ("pmessage", b"n?ws*", b"news", b"hello")
    assert sorted(r.pubsub_channels()) == [b"news", b"sport"] and r.pubsub_channels("s*") == [b"sport"]
    assert r.pubsub_numsub("news", "nobody") == [(b"news", 1), (b"nobody", 0)] and r.pubsub_numpat() == 1
    subscriber.ping()
    assert next_message(subscriber)[0] == "pong"
    subscriber.unsubscribe("news")
    assert next_message(subscriber) == ("unsubscribe", None, b"news", 2)
    with r.pipeline() as p:
        assert p.publish("sport", "in a transaction").incr("x").execute() == [1, 1]
    assert next_message(subscriber) == ("message", None, b"sport", b"in a transaction")
    subscriber.ssubscribe("shard")
    assert next_message(subscriber) == ("ssubscribe", None, b"shard", 1)
    assert r.spublish("shard", "x") == 1 if hasattr(r, "spublish") else r.execute_command("SPUBLISH", "shard", "x") == 1
    message = subscriber.get_sharded_message(timeout=5) if hasattr(subscriber, "get_sharded_message") else None
    if message is None:
        assert next_message(subscriber)[3] == b"x"
    else:
        assert message["type"] == "smessage" and message["data"] == b"x"
    subscriber.close()


def handlers(r):
    """Messages given to functions, by a thread of the client."""
    got = []
    subscriber = r.pubsub(ignore_subscribe_messages=True)
    subscriber.subscribe(news=lambda message: got.append(message["data"]))
    thread = subscriber.run_in_thread(sleep_time=0.01, daemon=True)
    while r.publish("news", "ready") == 0:
        time.sleep(0.01)
    for i in range(100):
        r.publish("news", i)
    for _ in range(500):
        if len(got) == 101:
            break
        time.sleep(0.01)
    assert got == [b"ready"] + [b"%d" % i for i in range(100)]
    thread.stop()
    thread.join()


def notifications(r):
    r.config_set("notify-keyspace-events", "KEA")
    subscriber = r.pubsub(ignore_subscribe_messages=True)
    subscriber.psubscribe("__key*__:*")
    subscriber.get_message(timeout=5)
    r.hset("h", "f", 1)
    r.rpush("l", 1)
    r.sadd("s", 1)
    r.zadd("z", {"m": 1})
    r.lpop("l")
    r.set("e", 1, px=20)
    expected = [("h", "hset"), ("l", "rpush"), ("s", "sadd"), ("z", "zadd"), ("l", "lpop"), ("l", "del")]
    expected += [("e", "set"), ("e", "expire"), ("e", "expired")]
    for key, event in expected:
        _, _, channel, data = next_message(subscriber)
        assert (channel, data) == (f"__keyspace@0__:{key}".encode(), event.encode()), (channel, data)
        _, _, channel, data = next_message(subscriber)
        assert (channel, data) == (f"__keyevent@0__:{event}".encode(), key.encode()), (channel, data)
    subscriber.close()
    r.config_set("notify-keyspace-events", "")


def all_messages(r):
    for script in (channels, handlers, notifications):
        r.flushall()
        script(r)
