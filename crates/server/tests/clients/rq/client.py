"""Jobs through RQ: workers are processes, in burst mode and waiting."""

import datetime
import os
import subprocess
import sys
import tempfile
import time

import redis
import rq
import rq.command
from jobs import add, fail, fail_until, sleep, started_at
from rq.registry import FailedJobRegistry, FinishedJobRegistry, ScheduledJobRegistry, StartedJobRegistry

URL = f"redis://localhost:{os.environ['PORT']}/4"
connection = redis.Redis.from_url(URL)
queue = rq.Queue("default", connection=connection)
urgent = rq.Queue("urgent", connection=connection)


def worker(*arguments):
    program = os.path.join(os.path.dirname(sys.executable), "rq")
    return subprocess.Popen([program, "worker", "-u", URL, "-P", ".", "--quiet", *arguments])


def burst(*queues):
    assert worker("--burst", *queues).wait(30) == 0


def wait_for(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.02)


def in_a_burst():
    jobs = [queue.enqueue(add, i, i) for i in range(10)]
    first = urgent.enqueue(add, 2, 3)
    last = queue.enqueue(add, 1, 1, depends_on=jobs[:2])
    failed = queue.enqueue(fail)
    assert len(queue) == 11 and queue.job_ids[:10] == [job.id for job in jobs] and last.get_status() == "deferred"
    burst("urgent", "default")
    assert [job.result for job in jobs] == [2 * i for i in range(10)] and first.result == 5
    assert last.get_status(refresh=True) == "finished" and last.result == 2
    assert set(FinishedJobRegistry(queue=queue).get_job_ids()) == {job.id for job in [*jobs, last]}
    assert failed.get_status(refresh=True) == "failed" and FailedJobRegistry(queue=queue).get_job_ids() == [failed.id]
    failed.refresh()
    assert "ValueError: as it should" in failed.exc_info
    assert len(queue) == 0 and rq.Queue.all(connection=connection) and failed.requeue() is not None
    burst("default")
    assert failed.get_status(refresh=True) == "failed"
    failed.delete()
    assert FailedJobRegistry(queue=queue).count == 0


def repeated():
    with tempfile.TemporaryDirectory() as directory:
        job = queue.enqueue(fail_until, os.path.join(directory, "tries"), 3, retry=rq.Retry(max=3))
        burst("default")
        job.refresh()
        assert job.get_status() == "finished" and job.retries_left == 1


def waiting():
    """A worker that waits for one queue, or several, has a scheduler and is told what to do."""
    now = time.time()
    # Times are kept in whole seconds.
    scheduled = queue.enqueue_in(datetime.timedelta(seconds=2), started_at)
    assert ScheduledJobRegistry(queue=queue).get_job_ids() == [scheduled.id]
    for queues in (["default"], ["urgent", "default"]):
        process = worker("--with-scheduler", *queues)
        wait_for(lambda: rq.Worker.count(connection=connection) == 1)
        job = queue.enqueue(add, 40, 2)
        wait_for(lambda: job.result == 42)
        wait_for(lambda: (scheduled.result or 0) >= now + 1)
        long = queue.enqueue(sleep)
        wait_for(lambda: long.id in StartedJobRegistry(queue=queue).get_job_ids())
        rq.command.send_stop_job_command(connection, long.id)
        wait_for(lambda: long.get_status(refresh=True) in ("failed", "stopped"))
        (name,) = [w.name for w in rq.Worker.all(connection=connection)]
        rq.command.send_shutdown_command(connection, name)
        assert process.wait(30) == 0
        assert rq.Worker.count(connection=connection) == 0


connection.flushdb()
for script in (in_a_burst, repeated, waiting):
    script()
print("RQ", rq.VERSION)
