// Lettuce with its defaults, and in each protocol; commands in turn, and many at once.
import io.lettuce.core.ClientOptions;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

public class Client {
  static void strings(RedisCommands<String, String> r) {
    Check.is("SET", "OK", r.set("k", "v"));
    Check.is("GET", "v", r.get("k"));
    Check.is("GET of a missing key", null, r.get("missing"));
    Check.is("SET NX", null, r.set("k", "w", SetArgs.Builder.nx()));
    Check.is("SET GET", "v", r.setGet("k", "w", SetArgs.Builder.ex(100)));
    Check.check(r.ttl("k") > 90, "TTL");
    Check.is("INCRBY", 42, r.incrby("n", 42));
    Check.is("INCRBYFLOAT", 0.5, r.incrbyfloat("f", 0.5));
    Check.is("MSET", "OK", r.mset(Map.of("a", "1", "b", "2")));
    Check.is("MGET", "[KeyValue[a, 1], KeyValue[missing].empty]", r.mget("a", "missing"));
    Check.is("EXISTS", 2, r.exists("a", "b", "missing"));
    Check.is("SETBIT", 0, r.setbit("bits", 7, 1));
    Check.is("BITCOUNT", 1, r.bitcount("bits"));
    Check.is("RENAME", "OK", r.rename("a", "c"));
    Check.is("OBJECT ENCODING", "int", r.objectEncoding("n"));
    Check.is("CLIENT SETNAME", "OK", r.clientSetname("tester"));
    Check.check(r.clientList().contains("lib-name=Lettuce"), "CLIENT LIST has the name of the library: " + r.clientList());
    Check.check(r.info("server").contains("redis_version"), "INFO");
    Check.is("CONFIG GET", 1, r.configGet("maxmemory").size());
    Check.check(r.commandCount() > 80 && r.command().size() > 80, "COMMAND");
    try {
      r.dispatch(() -> "NOSUCH".getBytes(), new StatusOutput<>(StringCodec.UTF8));
      Check.check(false, "an unknown command was answered");
    } catch (RedisCommandExecutionException error) {
      Check.check(error.getMessage().contains("unknown command"), error.getMessage());
    }
  }

  static void manyAtOnce(StatefulRedisConnection<String, String> connection) {
    List<RedisFuture<?>> replies = new ArrayList<>();
    connection.setAutoFlushCommands(false);
    for (int i = 0; i < 1000; i++) replies.add(connection.async().rpush("queue", "job:" + i));
    connection.flushCommands();
    connection.setAutoFlushCommands(true);
    Check.check(LettuceFutures.awaitAll(10, TimeUnit.SECONDS, replies.toArray(new RedisFuture[0])), "a pipeline");
    for (int i = 0; i < 1000; i++) Check.is("RPUSH in a pipeline", i + 1, replies.get(i).toCompletableFuture().join());
    List<String> all = connection.reactive().lrange("queue", 0, -1).collectList().block();
    for (int i = 0; i < 1000; i++) Check.is("LRANGE as a stream", "job:" + i, all.get(i));
  }

  static void exercise(RedisClient client, int database) {
    try (StatefulRedisConnection<String, String> connection = client.connect();
        StatefulRedisConnection<String, String> other = client.connect();
        StatefulRedisPubSubConnection<String, String> subscriber = client.connectPubSub()) {
      RedisCommands<String, String> r = connection.sync();
      r.flushall();
      strings(r);
      manyAtOnce(connection);
      new Values(r, other.sync()).everyType();
      r.flushdb();
      Messages.channels(r, subscriber);
      Messages.notifications(r, subscriber, database);
    }
  }

  public static void main(String[] args) {
    int port = Integer.parseInt(System.getenv("PORT"));
    for (ProtocolVersion protocol : new ProtocolVersion[] {null, ProtocolVersion.RESP2, ProtocolVersion.RESP3}) {
      int database = protocol == ProtocolVersion.RESP3 ? 3 : 0;
      RedisClient client = RedisClient.create(RedisURI.Builder.redis("localhost", port).withDatabase(database).build());
      if (protocol != null) client.setOptions(ClientOptions.builder().protocolVersion(protocol).build());
      exercise(client, database);
      client.shutdown(0, 5, TimeUnit.SECONDS);
    }
  }
}
