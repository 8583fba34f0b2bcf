// Publish and subscribe with Jedis, keyspace notifications with it. A subscriber takes its connection for itself.
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.params.SetParams;

public class Messages extends JedisPubSub {
  private final List<String> got = new CopyOnWriteArrayList<>();

  @Override
  public void onMessage(String channel, String message) {
    got.add(channel + " " + message);
  }

  @Override
  public void onPMessage(String pattern, String channel, String message) {
    got.add(pattern + " " + channel + " " + message);
  }

  private void expect(List<String> expected) {
    Check.until("there are as many messages as " + expected, () -> got.size() >= expected.size());
    Check.is("messages", expected, got);
    got.clear();
  }

  static void channels(Jedis r, Jedis other) throws InterruptedException {
    Messages messages = new Messages();
    Thread thread = new Thread(() -> other.subscribe(messages, "news", "sport"));
    thread.start();
    Check.until("two channels", () -> messages.getSubscribedChannels() == 2);
    messages.psubscribe("n?ws*");
    Check.until("a pattern", () -> messages.getSubscribedChannels() == 3);
    Check.is("PUBLISH", 2, r.publish("news", "hello"));
    Check.is("PUBLISH", 0, r.publish("nobody", "x"));
    messages.expect(List.of("news hello", "n?ws* news hello"));
    Check.is("PUBSUB CHANNELS", "[news, sport]", Check.sorted(r.pubsubChannels()));
    Check.is("PUBSUB NUMSUB", 1, r.pubsubNumSub("news", "nobody").get("news"));
    Check.is("PUBSUB NUMPAT", 1, r.pubsubNumPat());
    messages.unsubscribe("news");
    Check.until("a channel less", () -> messages.getSubscribedChannels() == 2);
    Check.is("PUBLISH", 1, r.publish("news", "again"));
    messages.expect(List.of("n?ws* news again"));
    messages.punsubscribe();
    messages.unsubscribe();
    thread.join(10_000);
    Check.check(!thread.isAlive(), "the subscriber does not end");
    Check.is("PING afterwards", "PONG", other.ping());
  }

  static void notifications(Jedis r, Jedis other, int database) throws InterruptedException {
    Check.is("CONFIG SET", "OK", r.configSet("notify-keyspace-events", "EA"));
    String prefix = "__keyevent@" + database + "__:";
    Messages messages = new Messages();
    Thread thread = new Thread(() -> other.psubscribe(messages, prefix + "*"));
    thread.start();
    Check.until("a pattern", () -> messages.getSubscribedChannels() == 1);
    r.hset("h", "f", "1");
    r.rpush("l", "1");
    r.sadd("s", "1");
    r.zadd("z", 1, "m");
    r.lpop("l");
    r.set("e", "1", SetParams.setParams().px(20));
    messages.expect(
        List.of("hset h", "rpush l", "sadd s", "zadd z", "lpop l", "del l", "set e", "expire e", "expired e").stream()
            .map(event -> prefix + "* " + prefix + event).toList());
    messages.punsubscribe();
    thread.join(10_000);
    Check.is("CONFIG SET", "OK", r.configSet("notify-keyspace-events", ""));
  }
}
