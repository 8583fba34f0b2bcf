"""What the worker runs: broker and results are on one server, in two databases."""

import os
import time

from celery import Celery

URL = f"redis://localhost:{os.environ['PORT']}"
app = Celery("jobs", broker=f"{URL}/1", backend=f"{URL}/2")
app.conf.broker_connection_retry_on_startup = True
app.conf.worker_send_task_events = True
app.conf.result_expires = 600


@app.task
def add(x, y):
    return x + y


@app.task
def total(numbers):
    return sum(numbers)


@app.task
def fail():
    raise ValueError("as it should")


@app.task(bind=True, max_retries=3)
def flaky(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return self.request.retries


@app.task(bind=True)
def staged(self):
    self.update_state(state="HALFWAY", meta={"done": 50})
    time.sleep(0.2)
    return "done"


@app.task
def started_at():
    return time.time()
