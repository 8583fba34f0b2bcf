// Redisson with its defaults: locks, maps with deadlines, queues, limiters, each of which is a script; streams.
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.Redisson;
import org.redisson.api.RBatch;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RBloomFilter;
import org.redisson.api.RBucket;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RFuture;
import org.redisson.api.RLock;
import org.redisson.api.RMap;
import org.redisson.api.RMapCache;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RScoredSortedSet;
import org.redisson.api.RSemaphore;
import org.redisson.api.RSetCache;
import org.redisson.api.RTopic;
import org.redisson.api.RTransaction;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.api.TransactionOptions;
import org.redisson.config.Config;

public class Client {
  static void check(boolean ok, String what) {
    Check.check(ok, what);
  }

  static RedissonClient connect() {
    Config config = new Config();
    config.useSingleServer().setAddress("redis://localhost:" + System.getenv("PORT")).setDatabase(9);
    return Redisson.create(config);
  }

  /** Threads of two programs add to a counter, of which a lock alone makes one number. */
  static void excludes(RedissonClient one, RedissonClient other, String name) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(8);
    List<Future<?>> all = new ArrayList<>();
    RBucket<Integer> count = one.getBucket("count:" + name);
    count.set(0);
    for (int i = 0; i < 8; i++) {
      RedissonClient client = i % 2 == 0 ? one : other;
      all.add(threads.submit(() -> {
        RLock lock = name.equals("fair") ? client.getFairLock(name) : client.getLock(name);
        RBucket<Integer> own = client.getBucket("count:" + name);
        for (int times = 0; times < 25; times++) {
          lock.lock();
          own.set(own.get() + 1);
          lock.unlock();
        }
      }));
    }
    for (Future<?> future : all) future.get(60, TimeUnit.SECONDS);
    threads.shutdown();
    check(count.get() == 200, name + " excludes: " + count.get());
  }

  static void locks(RedissonClient one, RedissonClient other) throws Exception {
    excludes(one, other, "plain");
    excludes(one, other, "fair");
    RLock lock = one.getLock("held");
    lock.lock();
    lock.lock();
    check(lock.getHoldCount() == 2 && lock.isHeldByCurrentThread(), "a lock taken twice");
    check(!other.getLock("held").tryLock(50, TimeUnit.MILLISECONDS), "a lock that another holds");
    lock.unlock();
    lock.unlock();
    check(!lock.isLocked(), "a lock that is given back");
    check(other.getLock("held").tryLock(0, 300, TimeUnit.MILLISECONDS), "a lock for a time");
    Check.until("it ends by itself", () -> !lock.isLocked());

    RReadWriteLock both = one.getReadWriteLock("both");
    both.readLock().lock();
    check(other.getReadWriteLock("both").readLock().tryLock(), "two that read");
    check(!other.getReadWriteLock("both").writeLock().tryLock(), "no one writes while another reads");
    both.readLock().unlock();
    other.getReadWriteLock("both").readLock().unlock();
    check(other.getReadWriteLock("both").writeLock().tryLock(), "one writes");

    RSemaphore permits = one.getSemaphore("permits");
    check(permits.trySetPermits(3) && permits.tryAcquire(2) && !permits.tryAcquire(2), "a semaphore");
    permits.release(2);
    check(permits.availablePermits() == 3, "permits that are given back");
    RPermitExpirableSemaphore expiring = one.getPermitExpirableSemaphore("expiring");
    expiring.trySetPermits(1);
    String id = expiring.tryAcquire(0, 200, TimeUnit.MILLISECONDS);
    check(id != null && expiring.tryAcquire() == null, "a permit for a time");
    Check.until("it comes back by itself", () -> expiring.availablePermits() == 1);

    RCountDownLatch latch = one.getCountDownLatch("latch");
    check(latch.trySetCount(2), "a latch");
    new Thread(() -> { for (int i = 0; i < 2; i++) other.getCountDownLatch("latch").countDown(); }).start();
    check(latch.await(20, TimeUnit.SECONDS), "a latch that opens");
  }

  static void maps(RedissonClient one) throws Exception {
    RMap<String, Integer> map = one.getMap("map");
    check(map.put("a", 1) == null && map.put("a", 2) == 1 && map.putIfAbsent("a", 3) == 2, "put");
    check(map.replace("a", 2, 4) && !map.remove("a", 2), "replace");
    check(map.merge("a", 1, Integer::sum) == 5 && map.fastPut("b", 1) && map.size() == 2, "merge");
    check(map.getAll(Set.of("a", "b", "c")).equals(Map.of("a", 5, "b", 1)), "several");
    check(map.fastRemove("a", "c") == 1 && map.readAllKeySet().equals(Set.of("b")), "remove");

    RMapCache<String, String> cache = one.getMapCache("cache");
    cache.put("short", "1", 200, TimeUnit.MILLISECONDS);
    cache.put("long", "2", 1, TimeUnit.HOURS);
    cache.put("idle", "3", 0, TimeUnit.SECONDS, 1, TimeUnit.HOURS);
    check("1".equals(cache.get("short")) && cache.remainTimeToLive("long") > 3_000_000, "entries with deadlines");
    Check.until("one goes", () -> cache.get("short") == null);
    check(cache.readAllMap().equals(Map.of("long", "2", "idle", "3")), "the others stay");
    RMapCache<Integer, Integer> bounded = one.getMapCache("bounded");
    check(bounded.trySetMaxSize(2), "a map of two");
    for (int i = 0; i < 5; i++) bounded.put(i, i);
    check(bounded.size() == 2 && bounded.get(4) == 4, "the others go");

    RSetCache<String> set = one.getSetCache("set");
    check(set.add("x", 200, TimeUnit.MILLISECONDS) && set.add("y") && set.contains("x"), "a set with deadlines");
    Check.until("one goes", () -> !set.contains("x") && set.contains("y"));
  }

  static void queues(RedissonClient one, RedissonClient other) throws Exception {
    RBlockingQueue<Integer> queue = one.getBlockingQueue("queue");
    RBlockingQueue<Integer> seen = other.getBlockingQueue("queue");
    RFuture<Integer> waiting = seen.pollAsync(20, TimeUnit.SECONDS);
    queue.add(1);
    check(waiting.get() == 1, "one that waits");
    RDelayedQueue<Integer> delayed = one.getDelayedQueue(queue);
    delayed.offer(2, 300, TimeUnit.MILLISECONDS);
    check(seen.poll() == null && seen.poll(20, TimeUnit.SECONDS) == 2, "a delayed one");
    delayed.destroy();

    RTopic topic = one.getTopic("topic");
    CountDownLatch heard = new CountDownLatch(10);
    topic.addListener(String.class, (channel, text) -> heard.countDown());
    for (int i = 0; i < 10; i++) other.getTopic("topic").publish("text");
    check(heard.await(20, TimeUnit.SECONDS), "messages");

    RScoredSortedSet<String> scores = one.getScoredSortedSet("scores");
    scores.addAll(Map.of("a", 1.0, "b", 2.0, "c", 3.0));
    check(scores.addScoreAndGetRank("a", 5) == 2 && "b".equals(scores.pollFirst()), "scores");
    check(scores.tryAdd(1, "d") && !scores.tryAdd(1, "d") && scores.replace("d", "e"), "members");
  }

  static void others(RedissonClient one) throws Exception {
    RRateLimiter limiter = one.getRateLimiter("limiter");
    check(limiter.trySetRate(RateType.OVERALL, 5, java.time.Duration.ofSeconds(30)), "a limiter");
    AtomicInteger granted = new AtomicInteger();
    for (int i = 0; i < 9; i++) granted.addAndGet(limiter.tryAcquire() ? 1 : 0);
    check(granted.get() == 5 && limiter.availablePermits() == 0, "as many as it lets: " + granted);

    RBucket<String> bucket = one.getBucket("bucket");
    check(bucket.compareAndSet(null, "1") && !bucket.compareAndSet("2", "3") && "1".equals(bucket.getAndSet("4")), "a bucket");
    check(one.getAtomicLong("long").compareAndSet(0, 7) && one.getAtomicDouble("double").addAndGet(1.5) == 1.5, "numbers");
    RBloomFilter<String> filter = one.getBloomFilter("filter");
    check(filter.tryInit(1000, 0.01) && filter.add("a") && filter.contains("a") && filter.count() == 1, "a filter");

    RBatch batch = one.createBatch();
    for (int i = 0; i < 500; i++) batch.getMap("batch").fastPutAsync("" + i, i);
    check(batch.execute().getResponses().size() == 500 && one.getMap("batch").size() == 500, "a batch");
    RTransaction transaction = one.createTransaction(TransactionOptions.defaults());
    transaction.getMap("batch").put("0", 17);
    transaction.getBucket("made").set("x");
    transaction.commit();
    check(one.getMap("batch").get("0").equals(17) && "x".equals(one.getBucket("made").get()), "a transaction");
    check(one.getKeys().deleteByPattern("batch*") == 1, "keys by a pattern");
  }

  public static void main(String[] args) throws Exception {
    RedissonClient one = connect();
    RedissonClient other = connect();
    try {
      one.getKeys().flushdb();
      locks(one, other);
      maps(one);
      queues(one, other);
      others(one);
      Streams.all(one, other);
    } finally {
      one.shutdown();
      other.shutdown();
    }
  }
}
