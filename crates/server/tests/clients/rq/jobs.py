"""What the worker runs, and the class of jobs for versions of RQ that would keep results in streams."""

import time

import rq.job


class Job(rq.job.Job):
    supports_redis_streams = False


def add(x, y):
    return x + y


def fail():
    raise ValueError("as it should")


def fail_until(path, count):
    with open(path, "a+") as file:
        file.write("x")
        file.seek(0)
        if len(file.read()) < count:
            raise ValueError("not yet")


def started_at():
    return time.time()


def sleep():
    time.sleep(60)
