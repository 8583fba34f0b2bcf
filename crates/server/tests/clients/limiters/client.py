"""limits with its defaults: each strategy, with hits one after the other and from many threads."""
import os
import threading
import time

from limits import parse, storage, strategies

store = storage.storage_from_string(f"redis://localhost:{os.environ['PORT']}/7")
store.reset()

for name in ["FixedWindowRateLimiter", "MovingWindowRateLimiter", "SlidingWindowCounterRateLimiter"]:
    limiter = getattr(strategies, name)(store)
    ten = parse("10 per minute")
    hits = [limiter.hit(ten, name, "one") for _ in range(12)]
    assert hits.count(True) == 10 and hits[:10] == [True] * 10, (name, hits)
    assert not limiter.test(ten, name, "one") and limiter.test(ten, name, "other"), name
    left = limiter.get_window_stats(ten, name, "one")
    assert left.remaining == 0 and left.reset_time > time.time() - 1, (name, left)
    limiter.clear(ten, name, "one")
    assert limiter.hit(ten, name, "one", cost=10) and not limiter.hit(ten, name, "one"), name

    # Together they get as much as one alone.
    hundred, granted = parse("100 per hour"), []

    def ask():
        granted.extend([True for _ in range(40) if limiter.hit(hundred, name, "crowd")])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(granted) == 100, (name, len(granted))

    short = parse("3 per second")
    assert [limiter.hit(short, name, "short") for _ in range(3)] == [True] * 3, name
    time.sleep(2.1)
    assert limiter.hit(short, name, "short"), name
print("limits", __import__("limits").__version__)
