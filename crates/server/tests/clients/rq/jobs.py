"""What the worker runs."""

import time


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
