// Publish and subscribe with Lettuce, keyspace notifications with it.
import io.lettuce.core.RedisException;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.pubsub.api.sync.RedisPubSubCommands;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

public class Messages extends RedisPubSubAdapter<String, String> {
  private final List<String> got = new CopyOnWriteArrayList<>();

  @Override
  public void message(String channel, String message) {
    got.add(channel + " " + message);
  }

  @Override
  public void message(String pattern, String channel, String message) {
    got.add(pattern + " " + channel + " " + message);
  }

  @Override
  public void smessage(String channel, String message) {
    got.add("shard " + channel + " " + message);
  }

  private void expect(List<String> expected) {
    Check.until("there are as many messages as " + expected, () -> got.size() >= expected.size());
    Check.is("messages", expected, got);
    got.clear();
  }

  static void channels(RedisCommands<String, String> r, StatefulRedisPubSubConnection<String, String> connection) {
    Messages messages = new Messages();
    connection.addListener(messages);
    RedisPubSubCommands<String, String> subscriber = connection.sync();
    subscriber.subscribe("news", "sport");
    subscriber.psubscribe("n?ws*");
    subscriber.ssubscribe("shard");
    Check.is("PUBLISH", 2, r.publish("news", "hello"));
    Check.is("PUBLISH", 0, r.publish("nobody", "x"));
    Check.is("SPUBLISH", 1, r.spublish("shard", "piece"));
    messages.expect(List.of("news hello", "n?ws* news hello", "shard shard piece"));
    Check.is("PUBSUB CHANNELS", "[news, sport]", Check.sorted(r.pubsubChannels()));
    Check.is("PUBSUB NUMSUB", 1, r.pubsubNumsub("news", "nobody").get("news"));
    Check.is("PUBSUB SHARDCHANNELS", "[shard]", r.pubsubShardChannels());
    Check.is("PUBSUB NUMPAT", 1, r.pubsubNumpat());
    subscriber.unsubscribe("news", "sport");
    Check.is("PUBLISH", 1, r.publish("news", "again"));
    messages.expect(List.of("n?ws* news again"));
    subscriber.punsubscribe("n?ws*");
    Check.until("SUNSUBSCRIBE is sent", () -> isSent(() -> subscriber.sunsubscribe("shard")));
    Check.until("nobody listens", () -> r.pubsubShardChannels().isEmpty());
    connection.removeListener(messages);
  }

  /** In RESP2 Lettuce refuses SUNSUBSCRIBE until it has noted, a moment after the reply, that nothing else is subscribed to. */
  private static boolean isSent(Runnable command) {
    try {
      command.run();
      return true;
    } catch (RedisException refused) {
      Check.check(refused.getMessage().contains("not allowed while subscribed"), refused.getMessage());
      return false;
    }
  }

  static void notifications(
      RedisCommands<String, String> r, StatefulRedisPubSubConnection<String, String> connection, int database) {
    Check.is("CONFIG SET", "OK", r.configSet("notify-keyspace-events", "EA"));
    String prefix = "__keyevent@" + database + "__:";
    Messages messages = new Messages();
    connection.addListener(messages);
    connection.sync().psubscribe(prefix + "*");
    r.hset("h", "f", "1");
    r.rpush("l", "1");
    r.sadd("s", "1");
    r.zadd("z", 1, "m");
    r.lpop("l");
    r.set("e", "1", SetArgs.Builder.px(20));
    messages.expect(
        List.of("hset h", "rpush l", "sadd s", "zadd z", "lpop l", "del l", "set e", "expire e", "expired e").stream()
            .map(event -> prefix + "* " + prefix + event).toList());
    connection.sync().punsubscribe(prefix + "*");
    Check.is("CONFIG SET", "OK", r.configSet("notify-keyspace-events", ""));
  }
}
