"""Jobs through Celery: a worker process, the broker and the results on one server."""

import os
import signal
import subprocess
import sys
import time

import celery
import kombu
from celery import chain, chord, group
from jobs import URL, add, app, fail, flaky, staged, started_at, total

PATIENCE = {"timeout": 30}


def results():
    assert add.delay(2, 3).get(**PATIENCE) == 5
    many = [add.delay(i, i) for i in range(50)]
    assert [one.get(**PATIENCE) for one in many] == [2 * i for i in range(50)]
    failed = fail.delay()
    try:
        failed.get(**PATIENCE)
        raise AssertionError("a failed job has a result")
    except ValueError as error:
        assert str(error) == "as it should"
    assert failed.state == "FAILURE"
    one = staged.delay()
    states = set()
    while not one.ready():
        states.add(one.state)
        time.sleep(0.01)
    assert "HALFWAY" in states and one.get(**PATIENCE) == "done", states
    one.forget()
    assert one.state == "PENDING"


def later():
    assert flaky.delay().get(**PATIENCE) == 2
    now = time.time()
    assert started_at.apply_async(countdown=1).get(**PATIENCE) >= now + 1
    revoked = started_at.apply_async(countdown=60)
    revoked.revoke()
    try:
        revoked.get(**PATIENCE)
        raise AssertionError("a revoked job has a result")
    except celery.exceptions.TaskRevokedError:
        pass


def together():
    assert group(add.s(i, 1) for i in range(20))().get(**PATIENCE) == list(range(1, 21))
    assert chain(add.s(1, 2), add.s(3), add.s(4))().get(**PATIENCE) == 10
    assert chord((add.s(i, i) for i in range(20)), total.s())().get(**PATIENCE) == 380
    assert (group(add.s(1, 1), chain(add.s(1, 1), add.s(1))) | total.s())().get(**PATIENCE) == 5
    try:
        chord([add.s(1, 1), fail.s()], total.s())().get(**PATIENCE)
        raise AssertionError("a chord with a failed job has a result")
    except (celery.exceptions.ChordError, ValueError) as error:
        assert "as it should" in str(error)


def remote_control():
    replies = app.control.ping(timeout=2)
    assert [list(reply.values()) for reply in replies] == [[{"ok": "pong"}]], replies
    (stats,) = app.control.inspect().stats().values()
    assert stats["total"]["jobs.add"] > 50 and stats["broker"]["transport"] == "redis"


def priorities_and_redelivery():
    """What a consumer has taken and not acknowledged is given to another one; kombu alone."""
    queue = kombu.Queue("urgent", kombu.Exchange("urgent"), routing_key="urgent", max_priority=9)
    with kombu.Connection(f"{URL}/3", transport_options={"visibility_timeout": 0}) as taker:
        with taker.Producer() as producer:
            for number, priority in ((1, 9), (2, 0), (3, 3)):
                producer.publish(number, exchange=queue.exchange, routing_key="urgent", priority=priority, declare=[queue])
        channel = taker.default_channel
        bound = queue(channel)
        # Of a lower number first; each is a list of its own.
        taken = [bound.get(no_ack=False) for _ in range(3)]
        assert [message.payload for message in taken] == [2, 3, 1]
        assert bound.get() is None
        taken[0].ack()
        channel.qos.restore_visible()
        # What nobody acknowledged goes back, before the others.
        again = [bound.get(no_ack=False) for _ in range(2)]
        assert sorted(message.payload for message in again) == [1, 3]
        assert all(message.delivery_info["redelivered"] or message.properties.get("redelivered") for message in again)
        again[0].reject(requeue=True)
        again[1].ack()
    with kombu.Connection(f"{URL}/3") as other:
        bound = queue(other.default_channel)
        message = bound.get()
        assert message.payload == again[0].payload and bound.get() is None
        message.ack()
        assert bound.purge() == 0


command = [os.path.join(os.path.dirname(sys.executable), "celery"), "-A", "jobs", "worker", "-c", "2", "-l", "WARNING"]
worker = subprocess.Popen(command)
try:
    for script in (results, later, together, remote_control, priorities_and_redelivery):
        script()
        assert worker.poll() is None, "the worker is gone"
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0, "the worker did not shut down in peace"
finally:
    worker.kill()
print("Celery", celery.__version__, "kombu", kombu.__version__)
