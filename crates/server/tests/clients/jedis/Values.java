// A script of each type with Jedis. `other` is a second connection in the same protocol.
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.args.ExpiryOption;
import redis.clients.jedis.args.ListDirection;
import redis.clients.jedis.args.ListPosition;
import redis.clients.jedis.args.SortedSetOption;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.HGetExParams;
import redis.clients.jedis.params.HSetExParams;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SortingParams;
import redis.clients.jedis.params.ZAddParams;
import redis.clients.jedis.params.ZParams;
import redis.clients.jedis.params.ZRangeParams;
import redis.clients.jedis.resps.ScanResult;
import redis.clients.jedis.resps.Tuple;

public class Values {
  private final Jedis r;
  private final Jedis other;

  Values(Jedis r, Jedis other) {
    this.r = r;
    this.other = other;
  }

  static <T> List<T> all(Function<String, ScanResult<T>> scan) {
    List<T> found = new ArrayList<>();
    String cursor = ScanParams.SCAN_POINTER_START;
    do {
      ScanResult<T> page = scan.apply(cursor);
      found.addAll(page.getResult());
      cursor = page.getCursor();
    } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
    return found;
  }

  static String[] members(int from, int to) {
    String[] made = new String[to - from];
    for (int i = from; i < to; i++) made[i - from] = "m:" + i;
    return made;
  }

  void hashes() {
    Check.is("HSET", 1, r.hset("h", "a", "1"));
    Check.is("HSET of many", 2, r.hset("h", Map.of("a", "2", "b", "x", "c", "1.5")));
    Check.is("HGET", "2", r.hget("h", "a"));
    Check.is("HGET of a missing field", null, r.hget("h", "missing"));
    Check.is("HMGET", "[2, null, x]", r.hmget("h", "a", "missing", "b"));
    Check.is("HGETALL", "{a=2, b=x, c=1.5}", new TreeMap<>(r.hgetAll("h")));
    Check.is("HGETALL of a missing key", "{}", r.hgetAll("missing"));
    Check.is("HINCRBY", 42, r.hincrBy("h", "a", 40));
    Check.is("HINCRBYFLOAT", 1.75, r.hincrByFloat("h", "c", 0.25));
    Check.is("HLEN", 3, r.hlen("h"));
    Check.is("HEXISTS", true, r.hexists("h", "b"));
    Check.is("HSTRLEN", 4, r.hstrlen("h", "c"));
    Check.is("HKEYS", "[a, b, c]", Check.sorted(r.hkeys("h")));
    Check.is("HVALS", "[1.75, 42, x]", Check.sorted(r.hvals("h")));
    Check.is("HSETNX", 0, r.hsetnx("h", "a", "9"));
    Check.is("HDEL", 1, r.hdel("h", "b", "missing"));
    TreeMap<String, String> random = new TreeMap<>();
    r.hrandfieldWithValues("h", 5).forEach(pair -> random.put(pair.getKey(), pair.getValue()));
    Check.is("HRANDFIELD", "{a=42, c=1.75}", random);
    Map<String, String> large = new TreeMap<>();
    for (int i = 0; i < 2000; i++) large.put("field:" + i, "value:" + i);
    Check.is("HSET of many", 2000, r.hset("large", large));
    Map<String, String> found = new TreeMap<>();
    List<Map.Entry<String, String>> entries = all(cursor -> r.hscan("large", cursor, new ScanParams().count(50)));
    entries.forEach(entry -> found.put(entry.getKey(), entry.getValue()));
    Check.check(entries.size() == 2000 && found.equals(large), "HSCAN");
    ScanParams some = new ScanParams().match("field:1?").count(200);
    Check.is("HSCAN MATCH", 10, all(cursor -> r.hscan("large", cursor, some)).size());
    try {
      r.lpush("h", "1");
      Check.check(false, "LPUSH to a hash was answered");
    } catch (JedisDataException error) {
      Check.check(error.getMessage().startsWith("WRONGTYPE"), error.getMessage());
    }
  }

  void fieldDeadlines() {
    Check.is("HSET", 3, r.hset("d", Map.of("a", "1", "b", "2", "c", "3")));
    Check.is("HEXPIRE", "[1, -2]", r.hexpire("d", 100, "a", "missing"));
    Check.is("HPEXPIRE", "[1]", r.hpexpire("d", 50, "b"));
    long at = System.currentTimeMillis() / 1000 + 200;
    Check.is("HEXPIREAT", "[1]", r.hexpireAt("d", at, "c"));
    Check.is("HEXPIREAT NX", "[0]", r.hexpireAt("d", at + 1, ExpiryOption.NX, "c"));
    Check.is("HEXPIRETIME", List.of(at), r.hexpireTime("d", "c"));
    List<Long> ttl = r.httl("d", "a", "missing");
    Check.check(ttl.get(0) > 90 && ttl.get(0) <= 100 && ttl.get(1) == -2, "HTTL " + ttl);
    Check.check(r.hpttl("d", "a").get(0) > 90_000, "HPTTL");
    Check.is("HPERSIST", "[1, -2]", r.hpersist("d", "a", "missing"));
    Check.sleep(100);
    Check.is("HGETALL", "{a=1, c=3}", new TreeMap<>(r.hgetAll("d")));
    Check.is("HSETEX", 1, r.hsetex("d", HSetExParams.hSetExParams().ex(100), "e", "5"));
    Check.is("HGETEX", "[5]", r.hgetex("d", HGetExParams.hGetExParams().persist(), "e"));
    Check.is("HTTL", "[-1]", r.httl("d", "e"));
    Check.is("HGETDEL", "[5, null]", r.hgetdel("d", "e", "missing"));
  }

  void lists() {
    Check.is("RPUSH", 3, r.rpush("l", "a", "b", "c"));
    Check.is("LPUSH", 4, r.lpush("l", "z"));
    Check.is("LRANGE", "[z, a, b, c]", r.lrange("l", 0, -1));
    Check.is("LPOP", "z", r.lpop("l"));
    Check.is("RPOP", "c", r.rpop("l"));
    Check.is("LPOP of a missing key", null, r.lpop("missing"));
    Check.is("LINSERT", 3, r.linsert("l", ListPosition.BEFORE, "b", "between"));
    Check.is("LINDEX", "between", r.lindex("l", 1));
    Check.is("LPOS", 2, r.lpos("l", "b"));
    Check.is("LSET", "OK", r.lset("l", 0, "A"));
    Check.is("LREM", 1, r.lrem("l", 1, "between"));
    Check.is("RPUSH", 7, r.rpush("l", "0", "1", "2", "3", "4"));
    Check.is("LPOP of two", "[A, b]", r.lpop("l", 2));
    Check.is("LTRIM", "OK", r.ltrim("l", 1, -1));
    Check.is("LMOVE", "1", r.lmove("l", "l2", ListDirection.LEFT, ListDirection.RIGHT));
    Check.is("RPOPLPUSH", "4", r.rpoplpush("l", "l2"));
    Check.is("LMPOP", "l=[2, 3]", r.lmpop(ListDirection.LEFT, 2, "missing", "l"));
    Check.is("SORT", "[4, 1]", r.sort("l2", new SortingParams().desc()));
  }

  void waiting() {
    Runnable push = () -> r.rpush("w2", "job");
    Check.is("BLPOP in vain", null, other.blpop(0.05, "nothing"));
    Check.is("BLPOP", "w2=job", Check.blocked(this::clients, () -> other.blpop(10.0, "w1", "w2"), push));
    Check.is("BRPOP", "[w2, job]", Check.blocked(this::clients, () -> other.brpop(0, "w1", "w2"), push));
    Check.is("BLMOVE", "job", Check.blocked(this::clients,
        () -> other.blmove("w2", "done", ListDirection.LEFT, ListDirection.RIGHT, 10), push));
    Check.is("BRPOPLPUSH", "job", Check.blocked(this::clients, () -> other.brpoplpush("w2", "done", 10), push));
    Check.is("BLMPOP", "w2=[job]", Check.blocked(this::clients, () -> other.blmpop(10, ListDirection.LEFT, "w2"), push));
    Check.is("LRANGE", "[job, job]", r.lrange("done", 0, -1));

    Runnable add = () -> r.zadd("w2", 1.5, "m");
    Check.is("BZPOPMIN in vain", null, other.bzpopmin(0.05, "nothing"));
    Check.is("BZPOPMIN", "w2=[m,1.5]", Check.blocked(this::clients, () -> other.bzpopmin(10, "w1", "w2"), add));
    Check.is("BZPOPMAX", "w2=[m,1.5]", Check.blocked(this::clients, () -> other.bzpopmax(0, "w2"), add));
    Check.is("BZMPOP", "w2=[[m,1.5]]", Check.blocked(this::clients, () -> other.bzmpop(10, SortedSetOption.MIN, "w2"), add));
    Check.is("EXISTS", false, r.exists("w2"));
  }

  String clients() {
    return r.info("clients");
  }

  void sets() {
    Check.is("SADD", 3, r.sadd("s", "a", "b", "c"));
    Check.is("SADD", 1, r.sadd("s", "a", "d"));
    Check.is("SMEMBERS", "[a, b, c, d]", Check.sorted(r.smembers("s")));
    Check.is("SMEMBERS of a missing key", "[]", r.smembers("missing"));
    Check.is("SISMEMBER", true, r.sismember("s", "a"));
    Check.is("SMISMEMBER", "[true, false]", r.smismember("s", "a", "x"));
    Check.is("SADD", 3, r.sadd("t", "c", "d", "e"));
    Check.is("SINTER", "[c, d]", Check.sorted(r.sinter("s", "t")));
    Check.is("SUNION", "[a, b, c, d, e]", Check.sorted(r.sunion("s", "t")));
    Check.is("SDIFF", "[a, b]", Check.sorted(r.sdiff("s", "t")));
    Check.is("SINTERCARD", 1, r.sintercard(1, "s", "t"));
    Check.is("SINTERSTORE", 2, r.sinterstore("to", "s", "t"));
    Check.is("SUNIONSTORE", 5, r.sunionstore("to", "s", "t"));
    Check.is("SDIFFSTORE", 2, r.sdiffstore("to", "s", "t"));
    Check.is("SMOVE", 1, r.smove("s", "t", "a"));
    Check.is("SREM", 1, r.srem("s", "b", "x"));
    Check.is("SCARD", 2, r.scard("s"));
    Check.is("SRANDMEMBER", "[c, d]", Check.sorted(r.srandmember("s", 5)));
    Check.is("SPOP", "[a, c, d, e]", Check.sorted(r.spop("t", 10)));
    Check.is("SPOP of a missing key", null, r.spop("t"));
    String[] many = members(0, 2000);
    Check.is("SADD of many", 2000, r.sadd("large", many));
    List<String> found = all(cursor -> r.sscan("large", cursor, new ScanParams().count(50)));
    Check.is("SSCAN", Check.sorted(List.of(many)), Check.sorted(found));
  }

  void sortedSets() {
    Check.is("ZADD", 3, r.zadd("z", Map.of("a", 1.0, "b", 2.5, "c", 3.0)));
    Check.is("ZADD NX", 0, r.zadd("z", 5, "a", ZAddParams.zAddParams().nx()));
    Check.is("ZADD GT CH", 1, r.zadd("z", 1.5, "a", ZAddParams.zAddParams().gt().ch()));
    Check.is("ZADD INCR", 2.0, r.zaddIncr("z", 0.5, "a", ZAddParams.zAddParams()));
    Check.is("ZINCRBY", 2.25, r.zincrby("z", 0.25, "a"));
    Check.is("ZSCORE", 2.25, r.zscore("z", "a"));
    Check.is("ZSCORE of a missing member", null, r.zscore("z", "x"));
    Check.is("ZMSCORE", "[2.25, null]", r.zmscore("z", "a", "x"));
    Check.is("ZRANGE", "[a, b, c]", r.zrange("z", 0, -1));
    Check.is("ZRANGE WITHSCORES", "[[a,2.25], [b,2.5]]", r.zrangeWithScores("z", 0, 1));
    Check.is("ZRANGE BYSCORE REV", "[b, a]", r.zrange("z", ZRangeParams.zrangeByScoreParams(2.6, 2).rev()));
    Check.is("ZRANGEBYSCORE", "[b]", r.zrangeByScore("z", "-inf", "+inf", 1, 1));
    Check.is("ZREVRANGEBYSCORE", "[c]", r.zrevrangeByScore("z", "3", "(2.5"));
    Check.is("ZRANK", 2, r.zrank("z", "c"));
    Check.is("ZREVRANK of a missing member", null, r.zrevrank("z", "x"));
    Check.is("ZRANK WITHSCORE", "1=2.5", r.zrankWithScore("z", "b"));
    Check.is("ZCOUNT", 1, r.zcount("z", "2.6", "3"));
    Check.is("ZREM", 1, r.zrem("z", "c", "x"));
    Check.is("ZADD", 4, r.zadd("lex", Map.of("a", 0.0, "b", 0.0, "c", 0.0, "d", 0.0)));
    Check.is("ZRANGEBYLEX", "[b, c]", r.zrangeByLex("lex", "[b", "(d"));
    Check.is("ZLEXCOUNT", 4, r.zlexcount("lex", "-", "+"));
    Check.is("ZADD", 2, r.zadd("y", Map.of("b", 10.0, "d", 4.0)));
    Check.is("ZUNION", "[[a,2.25], [d,4.0], [b,12.5]]", r.zunionWithScores(new ZParams(), "z", "y"));
    Check.is("ZDIFF", "[[a,2.25]]", r.zdiffWithScores("z", "y"));
    ZParams weighed = new ZParams().weights(2, 1).aggregate(ZParams.Aggregate.MAX);
    Check.is("ZINTERSTORE", 1, r.zinterstore("to", weighed, "z", "y"));
    Check.is("ZRANGE", "[[b,10.0]]", r.zrangeWithScores("to", 0, -1));
    Check.is("ZINTERCARD", 1, r.zintercard("z", "y"));
    Check.is("ZRANGESTORE", 1, r.zrangestore("to", "z", ZRangeParams.zrangeParams(0, 0)));
    Check.is("ZPOPMIN", "[d,4.0]", r.zpopmin("y"));
    Check.is("ZPOPMAX", "[[b,10.0]]", r.zpopmax("y", 2));
    Check.is("ZMPOP", "z=[[a,2.25]]", r.zmpop(SortedSetOption.MIN, "z"));
    Check.is("ZRANDMEMBER", "[[b,2.5]]", r.zrandmemberWithScores("z", 5));
  }

  void largeSortedSets() {
    Map<String, Double> large = new TreeMap<>();
    for (int i = 0; i < 2000; i++) large.put("m:" + i, i / 2.0);
    Check.is("ZADD of many", 2000, r.zadd("large", large));
    Check.is("ZADD", 1, r.zadd("large", Double.POSITIVE_INFINITY, "top"));
    Check.is("ZSCORE", "Infinity", r.zscore("large", "top"));
    Check.is("ZREMRANGEBYRANK", 1, r.zremrangeByRank("large", -1, -1));
    Map<String, Double> found = new TreeMap<>();
    List<Tuple> tuples = all(cursor -> r.zscan("large", cursor, new ScanParams().count(50)));
    tuples.forEach(tuple -> found.put(tuple.getElement(), tuple.getScore()));
    Check.check(tuples.size() == 2000 && found.equals(large), "ZSCAN");
    Check.is("ZREMRANGEBYSCORE", 20, r.zremrangeByScore("large", 10, 19.5));
    Check.is("ZRANK", 20, r.zrank("large", "m:40"));
  }

  void hyperLogLogs() {
    Check.is("PFADD", 1, r.pfadd("p", members(0, 1000)));
    Check.is("PFADD of the same", 0, r.pfadd("p", "m:1"));
    Check.near("PFCOUNT", 1000, r.pfcount("p"));
    Check.is("PFADD", 1, r.pfadd("q", members(1000, 2000)));
    Check.near("PFCOUNT", 2000, r.pfcount("p", "q"));
    Check.is("PFMERGE", "OK", r.pfmerge("pq", "p", "q"));
    Check.near("PFCOUNT", 2000, r.pfcount("pq"));
  }

  void transactions() {
    Transaction transaction = r.multi();
    transaction.hset("h", "a", "1");
    Response<Map<String, String>> hash = transaction.hgetAll("h");
    transaction.rpush("l", "x", "y");
    Response<List<String>> list = transaction.lrange("l", 0, -1);
    transaction.sadd("s", "m");
    transaction.zadd("z", 1.5, "m");
    Response<List<Tuple>> scored = transaction.zrangeWithScores("z", 0, -1);
    Check.is("EXEC", 7, transaction.exec().size());
    Check.is("HGETALL in MULTI", "{a=1}", hash.get());
    Check.is("LRANGE in MULTI", "[x, y]", list.get());
    Check.is("ZRANGE in MULTI", "[[m,1.5]]", scored.get());
    Map.of("h", "hash", "l", "list", "s", "set", "z", "zset").forEach((key, type) -> {
      Check.is("TYPE", type, r.type(key));
      Check.is("SCAN TYPE", "[" + key + "]", all(cursor -> r.scan(cursor, new ScanParams(), type)));
      Check.is("RESTORE", "OK", r.restore("copy", 0, r.dump(key)));
      Check.is("TYPE of the copy", type, r.type("copy"));
      r.unlink("copy");
    });
  }

  void everyType() {
    List<Runnable> scripts = List.of(this::hashes, this::fieldDeadlines, this::lists, this::waiting, this::sets,
        this::sortedSets, this::largeSortedSets, this::hyperLogLogs, this::transactions);
    for (Runnable script : scripts) {
      r.flushDB();
      script.run();
    }
  }
}
