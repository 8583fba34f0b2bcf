// A script of each type with Lettuce. `other` is a second connection in the same protocol.
import io.lettuce.core.ExpireArgs;
import io.lettuce.core.HGetExArgs;
import io.lettuce.core.HSetExArgs;
import io.lettuce.core.KeyScanArgs;
import io.lettuce.core.KeyValue;
import io.lettuce.core.LMPopArgs;
import io.lettuce.core.LMoveArgs;
import io.lettuce.core.Limit;
import io.lettuce.core.Range;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.ScoredValue;
import io.lettuce.core.SortArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.ZAddArgs;
import io.lettuce.core.ZPopArgs;
import io.lettuce.core.ZStoreArgs;
import io.lettuce.core.api.sync.RedisCommands;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

public class Values {
  private final RedisCommands<String, String> r;
  private final RedisCommands<String, String> other;

  Values(RedisCommands<String, String> r, RedisCommands<String, String> other) {
    this.r = r;
    this.other = other;
  }

  static <T> List<T> all(ScanIterator<T> iterator) {
    return iterator.stream().collect(Collectors.toList());
  }

  static String[] members(int from, int to) {
    return IntStream.range(from, to).mapToObj(i -> "m:" + i).toArray(String[]::new);
  }

  String clients() {
    return r.info("clients");
  }

  void hashes() {
    Check.is("HSET", true, r.hset("h", "a", "1"));
    Check.is("HSET of many", 2, r.hset("h", Map.of("a", "2", "b", "x", "c", "1.5")));
    Check.is("HGET", "2", r.hget("h", "a"));
    Check.is("HGET of a missing field", null, r.hget("h", "missing"));
    Check.is("HMGET", "[KeyValue[a, 2], KeyValue[missing].empty, KeyValue[b, x]]", r.hmget("h", "a", "missing", "b"));
    Check.is("HGETALL", "{a=2, b=x, c=1.5}", new TreeMap<>(r.hgetall("h")));
    Check.is("HGETALL of a missing key", "{}", r.hgetall("missing"));
    Check.is("HINCRBY", 42, r.hincrby("h", "a", 40));
    Check.is("HINCRBYFLOAT", 1.75, r.hincrbyfloat("h", "c", 0.25));
    Check.is("HLEN", 3, r.hlen("h"));
    Check.is("HEXISTS", true, r.hexists("h", "b"));
    Check.is("HSTRLEN", 4, r.hstrlen("h", "c"));
    Check.is("HKEYS", "[a, b, c]", Check.sorted(r.hkeys("h")));
    Check.is("HVALS", "[1.75, 42, x]", Check.sorted(r.hvals("h")));
    Check.is("HSETNX", false, r.hsetnx("h", "a", "9"));
    Check.is("HDEL", 1, r.hdel("h", "b", "missing"));
    Map<String, String> random = new TreeMap<>();
    r.hrandfieldWithvalues("h", 5).forEach(pair -> random.put(pair.getKey(), pair.getValue()));
    Check.is("HRANDFIELD", "{a=42, c=1.75}", random);
    Map<String, String> large = new TreeMap<>();
    for (int i = 0; i < 2000; i++) large.put("field:" + i, "value:" + i);
    Check.is("HSET of many", 2000, r.hset("large", large));
    List<KeyValue<String, String>> entries = all(ScanIterator.hscan(r, "large", ScanArgs.Builder.limit(50)));
    Map<String, String> found = new TreeMap<>();
    entries.forEach(entry -> found.put(entry.getKey(), entry.getValue()));
    Check.check(entries.size() == 2000 && found.equals(large), "HSCAN");
    ScanArgs some = ScanArgs.Builder.limit(200).match("field:1?");
    Check.is("HSCAN MATCH", 10, all(ScanIterator.hscan(r, "large", some)).size());
    try {
      r.lpush("h", "1");
      Check.check(false, "LPUSH to a hash was answered");
    } catch (RedisCommandExecutionException error) {
      Check.check(error.getMessage().startsWith("WRONGTYPE"), error.getMessage());
    }
  }

  void fieldDeadlines() {
    Check.is("HSET", 3, r.hset("d", Map.of("a", "1", "b", "2", "c", "3")));
    Check.is("HEXPIRE", "[1, -2]", r.hexpire("d", Duration.ofSeconds(100), "a", "missing"));
    Check.is("HPEXPIRE", "[1]", r.hpexpire("d", 50, "b"));
    long at = System.currentTimeMillis() / 1000 + 200;
    Check.is("HEXPIREAT", "[1]", r.hexpireat("d", at, "c"));
    Check.is("HEXPIREAT NX", "[0]", r.hexpireat("d", at + 1, ExpireArgs.Builder.nx(), "c"));
    Check.is("HEXPIRETIME", List.of(at), r.hexpiretime("d", "c"));
    List<Long> ttl = r.httl("d", "a", "missing");
    Check.check(ttl.get(0) > 90 && ttl.get(0) <= 100 && ttl.get(1) == -2, "HTTL " + ttl);
    Check.check(r.hpttl("d", "a").get(0) > 90_000, "HPTTL");
    Check.is("HPERSIST", "[1, -2]", r.hpersist("d", "a", "missing"));
    Check.sleep(100);
    Check.is("HGETALL", "{a=1, c=3}", new TreeMap<>(r.hgetall("d")));
    Check.is("HSETEX", 1, r.hsetex("d", HSetExArgs.Builder.ex(Duration.ofSeconds(100)), Map.of("e", "5")));
    Check.is("HGETEX", "[KeyValue[e, 5]]", r.hgetex("d", HGetExArgs.Builder.persist(), "e"));
    Check.is("HTTL", "[-1]", r.httl("d", "e"));
    Check.is("HGETDEL", "[KeyValue[e, 5], KeyValue[missing].empty]", r.hgetdel("d", "e", "missing"));
  }

  void lists() {
    Check.is("RPUSH", 3, r.rpush("l", "a", "b", "c"));
    Check.is("LPUSH", 4, r.lpush("l", "z"));
    Check.is("LRANGE", "[z, a, b, c]", r.lrange("l", 0, -1));
    Check.is("LPOP", "z", r.lpop("l"));
    Check.is("RPOP", "c", r.rpop("l"));
    Check.is("LPOP of a missing key", null, r.lpop("missing"));
    Check.is("LINSERT", 3, r.linsert("l", true, "b", "between"));
    Check.is("LINDEX", "between", r.lindex("l", 1));
    Check.is("LPOS", 2, r.lpos("l", "b"));
    Check.is("LSET", "OK", r.lset("l", 0, "A"));
    Check.is("LREM", 1, r.lrem("l", 1, "between"));
    Check.is("RPUSH", 7, r.rpush("l", "0", "1", "2", "3", "4"));
    Check.is("LPOP of two", "[A, b]", r.lpop("l", 2));
    Check.is("LTRIM", "OK", r.ltrim("l", 1, -1));
    Check.is("LMOVE", "1", r.lmove("l", "l2", LMoveArgs.Builder.leftRight()));
    Check.is("RPOPLPUSH", "4", r.rpoplpush("l", "l2"));
    Check.is("LMPOP", "KeyValue[l, [2, 3]]", r.lmpop(LMPopArgs.Builder.left().count(2), "missing", "l"));
    Check.is("SORT", "[4, 1]", r.sort("l2", SortArgs.Builder.desc()));
  }

  void waiting() {
    Runnable push = () -> r.rpush("w2", "job");
    Check.is("BLPOP in vain", null, other.blpop(0.05, "nothing"));
    Check.is("BLPOP", "KeyValue[w2, job]", Check.blocked(this::clients, () -> other.blpop(10, "w1", "w2"), push));
    Check.is("BRPOP", "KeyValue[w2, job]", Check.blocked(this::clients, () -> other.brpop(10.5, "w1", "w2"), push));
    Check.is("BLMOVE", "job", Check.blocked(this::clients,
        () -> other.blmove("w2", "done", LMoveArgs.Builder.leftRight(), 10), push));
    Check.is("BRPOPLPUSH", "job", Check.blocked(this::clients, () -> other.brpoplpush(10, "w2", "done"), push));
    Check.is("BLMPOP", "KeyValue[w2, [job]]", Check.blocked(this::clients,
        () -> other.blmpop(10, LMPopArgs.Builder.left(), "w2"), push));
    Check.is("LRANGE", "[job, job]", r.lrange("done", 0, -1));

    Runnable add = () -> r.zadd("w2", 1.5, "m");
    Check.is("BZPOPMIN in vain", null, other.bzpopmin(0.05, "nothing"));
    String popped = "KeyValue[w2, ScoredValue[1.500000, m]]";
    Check.is("BZPOPMIN", popped, Check.blocked(this::clients, () -> other.bzpopmin(10, "w1", "w2"), add));
    Check.is("BZPOPMAX", popped, Check.blocked(this::clients, () -> other.bzpopmax(10, "w2"), add));
    Check.is("BZMPOP", popped, Check.blocked(this::clients, () -> other.bzmpop(10, ZPopArgs.Builder.min(), "w2"), add));
    Check.is("EXISTS", 0, r.exists("w2"));
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
    Check.is("SMOVE", true, r.smove("s", "t", "a"));
    Check.is("SREM", 1, r.srem("s", "b", "x"));
    Check.is("SCARD", 2, r.scard("s"));
    Check.is("SRANDMEMBER", "[c, d]", Check.sorted(r.srandmember("s", 5)));
    Check.is("SPOP", "[a, c, d, e]", Check.sorted(r.spop("t", 10)));
    Check.is("SPOP of a missing key", null, r.spop("t"));
    String[] many = members(0, 2000);
    Check.is("SADD of many", 2000, r.sadd("large", many));
    List<String> found = all(ScanIterator.sscan(r, "large", ScanArgs.Builder.limit(50)));
    Check.is("SSCAN", Check.sorted(List.of(many)), Check.sorted(found));
  }

  void sortedSets() {
    Check.is("ZADD", 3, r.zadd("z", 1.0, "a", 2.5, "b", 3.0, "c"));
    Check.is("ZADD NX", 0, r.zadd("z", ZAddArgs.Builder.nx(), 5, "a"));
    Check.is("ZADD GT CH", 1, r.zadd("z", ZAddArgs.Builder.gt().ch(), 1.5, "a"));
    Check.is("ZADD INCR", 2.0, r.zaddincr("z", 0.5, "a"));
    Check.is("ZINCRBY", 2.25, r.zincrby("z", 0.25, "a"));
    Check.is("ZSCORE", 2.25, r.zscore("z", "a"));
    Check.is("ZSCORE of a missing member", null, r.zscore("z", "x"));
    Check.is("ZMSCORE", "[2.25, null]", r.zmscore("z", "a", "x"));
    Check.is("ZRANGE", "[a, b, c]", r.zrange("z", 0, -1));
    Check.is("ZRANGE", "[ScoredValue[2.250000, a], ScoredValue[2.500000, b]]", r.zrangeWithScores("z", 0, 1));
    Check.is("ZREVRANGE", "[c, b, a]", r.zrevrange("z", 0, -1));
    Check.is("ZRANGEBYSCORE", "[b]", r.zrangebyscore("z", Range.unbounded(), Limit.create(1, 1)));
    Check.is("ZREVRANGEBYSCORE", "[c]", r.zrevrangebyscore("z", Range.from(Range.Boundary.excluding(2.5), Range.Boundary.including(3))));
    Check.is("ZRANK", 2, r.zrank("z", "c"));
    Check.is("ZREVRANK of a missing member", null, r.zrevrank("z", "x"));
    // Not ZRANK WITHSCORE: Lettuce cannot read the reply of Redis 7.2 in RESP2.
    Check.is("ZCOUNT", 1, r.zcount("z", Range.create(2.6, 3)));
    Check.is("ZREM", 1, r.zrem("z", "c", "x"));
    Check.is("ZADD", 4, r.zadd("lex", 0.0, "a", 0.0, "b", 0.0, "c", 0.0, "d"));
    Check.is("ZRANGEBYLEX", "[b, c]", r.zrangebylex("lex", Range.from(Range.Boundary.including("b"), Range.Boundary.excluding("d"))));
    Check.is("ZLEXCOUNT", 4, r.zlexcount("lex", Range.unbounded()));
    Check.is("ZADD", 2, r.zadd("y", 10.0, "b", 4.0, "d"));
    Check.is("ZUNION", "[ScoredValue[2.250000, a], ScoredValue[4.000000, d], ScoredValue[12.500000, b]]", r.zunionWithScores("z", "y"));
    Check.is("ZDIFF", "[ScoredValue[2.250000, a]]", r.zdiffWithScores("z", "y"));
    Check.is("ZINTERSTORE", 1, r.zinterstore("to", ZStoreArgs.Builder.weights(2.0, 1.0).max(), "z", "y"));
    Check.is("ZRANGE", "[ScoredValue[10.000000, b]]", r.zrangeWithScores("to", 0, -1));
    Check.is("ZINTERCARD", 1, r.zintercard("z", "y"));
    Check.is("ZRANGESTORE", 1, r.zrangestore("to", "z", Range.create(0L, 0L)));
    Check.is("ZPOPMIN", "ScoredValue[4.000000, d]", r.zpopmin("y"));
    Check.is("ZPOPMAX", "[ScoredValue[10.000000, b]]", r.zpopmax("y", 2));
    Check.is("ZMPOP", "KeyValue[z, ScoredValue[2.250000, a]]", r.zmpop(ZPopArgs.Builder.min(), "z"));
    Check.is("ZRANDMEMBER", "[ScoredValue[2.500000, b]]", r.zrandmemberWithScores("z", 5));
  }

  @SuppressWarnings("unchecked")
  void largeSortedSets() {
    ScoredValue<String>[] large = new ScoredValue[2000];
    for (int i = 0; i < large.length; i++) large[i] = ScoredValue.just(i / 2.0, "m:" + i);
    Check.is("ZADD of many", 2000, r.zadd("large", large));
    Check.is("ZADD", 1, r.zadd("large", Double.POSITIVE_INFINITY, "top"));
    Check.is("ZSCORE", "Infinity", r.zscore("large", "top"));
    Check.is("ZREMRANGEBYRANK", 1, r.zremrangebyrank("large", -1, -1));
    Map<String, Double> found = new TreeMap<>();
    List<ScoredValue<String>> scored = all(ScanIterator.zscan(r, "large", ScanArgs.Builder.limit(50)));
    scored.forEach(one -> found.put(one.getValue(), one.getScore()));
    Check.check(scored.size() == 2000 && found.size() == 2000, "ZSCAN");
    for (ScoredValue<String> one : large) Check.is("ZSCAN", one.getScore(), found.get(one.getValue()));
    Check.is("ZREMRANGEBYSCORE", 20, r.zremrangebyscore("large", Range.create(10, 19.5)));
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
    Check.is("MULTI", "OK", r.multi());
    r.hset("h", Map.of("a", "1"));
    r.hgetall("h");
    r.rpush("l", "x", "y");
    r.lrange("l", 0, -1);
    r.sadd("s", "m");
    r.smembers("s");
    r.zadd("z", 1.5, "m");
    r.zrangeWithScores("z", 0, -1);
    r.zscore("z", "m");
    TransactionResult results = r.exec();
    Check.is("EXEC", "[1, {a=1}, 2, [x, y], 1, [m], 1, [ScoredValue[1.500000, m]], 1.5]", results.stream().toList());
    Map.of("h", "hash", "l", "list", "s", "set", "z", "zset").forEach((key, type) -> {
      Check.is("TYPE", type, r.type(key));
      Check.is("SCAN TYPE", "[" + key + "]", all(ScanIterator.scan(r, KeyScanArgs.Builder.type(type))));
      Check.is("RESTORE", "OK", r.restore("copy", 0, r.dump(key)));
      Check.is("TYPE of the copy", type, r.type("copy"));
      r.unlink("copy");
    });
    r.watch("l");
    other.rpush("l", "z");
    r.multi();
    r.rpush("l", "never");
    Check.is("EXEC after a change", true, r.exec().wasDiscarded());
    Check.is("LLEN", 3, r.llen("l"));
  }

  void everyType() {
    List<Runnable> scripts = List.of(this::hashes, this::fieldDeadlines, this::lists, this::waiting, this::sets,
        this::sortedSets, this::largeSortedSets, this::hyperLogLogs, this::transactions);
    for (Runnable script : scripts) {
      r.flushdb();
      script.run();
    }
  }
}
