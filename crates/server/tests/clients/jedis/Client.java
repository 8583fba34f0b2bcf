// Jedis with its defaults: a single connection in both protocols, and the pooled client.
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

public class Client {
  static void check(boolean ok, String what) {
    Check.check(ok, what);
  }

  static void single(Jedis r, Jedis other) {
    r.flushAll();
    check("OK".equals(r.set("k", "v")), "SET");
    check("v".equals(r.get("k")), "GET");
    check(r.get("missing") == null, "GET of a missing key");
    check(r.set("k", "w", SetParams.setParams().nx()) == null, "SET NX");
    r.setex("t", 100, "x");
    check(r.ttl("t") > 90, "TTL");
    check(r.incrBy("n", 42) == 42, "INCRBY");
    check(r.incrByFloat("f", 0.5) == 0.5, "INCRBYFLOAT");
    r.mset("a", "1", "b", "2");
    check(r.mget("a", "b", "missing").equals(Arrays.asList("1", "2", null)), "MGET");
    check(r.exists("a", "b", "missing") == 2, "EXISTS");
    check("string".equals(r.type("a")), "TYPE");
    check(!r.setbit("bits", 7, true) && r.bitcount("bits") == 1, "bits");
    byte[] payload = r.dump("k");
    r.restore("copy", 0, payload);
    check("v".equals(r.get("copy")), "RESTORE");

    Pipeline pipeline = r.pipelined();
    for (int i = 0; i < 500; i++) pipeline.set("scan:" + i, "" + i);
    pipeline.sync();
    HashSet<String> seen = new HashSet<>();
    String cursor = ScanParams.SCAN_POINTER_START;
    do {
      ScanResult<String> page = r.scan(cursor, new ScanParams().match("scan:*").count(50));
      seen.addAll(page.getResult());
      cursor = page.getCursor();
    } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
    check(seen.size() == 500, "SCAN");

    Transaction transaction = r.multi();
    transaction.set("x", "1");
    transaction.incr("x");
    List<Object> results = transaction.exec();
    check(results.size() == 2 && results.get(1).equals(2L), "MULTI");
    r.watch("x");
    other.set("x", "7");
    transaction = r.multi();
    transaction.incr("x");
    check(transaction.exec() == null, "WATCH");

    check("PONG".equals(r.ping()), "PING");
    check(r.info().contains("redis_version"), "INFO");
    check(r.configGet("maxmemory").containsKey("maxmemory"), "CONFIG GET");
    check(r.clientId() > 0, "CLIENT ID");
    check("OK".equals(r.select(4)) && r.dbSize() == 0, "SELECT");
    try {
      r.sendCommand(() -> "NOSUCH".getBytes());
      check(false, "an unknown command was answered");
    } catch (JedisDataException error) {
      check(error.getMessage().contains("unknown command"), error.getMessage());
    }
  }

  public static void main(String[] args) throws InterruptedException {
    int port = Integer.parseInt(System.getenv("PORT"));
    for (DefaultJedisClientConfig.Builder options : List.of(
        DefaultJedisClientConfig.builder(),
        DefaultJedisClientConfig.builder().resp2(),
        DefaultJedisClientConfig.builder().resp3().database(3).clientName("tester"))) {
      DefaultJedisClientConfig config = options.build();
      try (Jedis r = new Jedis("localhost", port, config); Jedis other = new Jedis("localhost", port, config)) {
        new Values(r, other).everyType();
        r.flushDB();
        Messages.channels(r, other);
        Messages.notifications(r, other, config.getDatabase());
        single(r, other);
      }
    }
    try (RedisClient pool = RedisClient.create("localhost", port)) {
      check("OK".equals(pool.set("pooled", "1")) && pool.incr("pooled") == 2, "the pooled client");
      check(pool.hset("pooled:h", "f", "v") == 1 && pool.hgetAll("pooled:h").size() == 1, "the pooled client");
      check(pool.brpop(0.05, "nothing") == null && pool.zadd("pooled:z", 1, "m") == 1, "the pooled client");
    }
  }
}
