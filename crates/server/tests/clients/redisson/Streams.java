// Streams with Redisson.
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.api.AutoClaimResult;
import org.redisson.api.FastAutoClaimResult;
import org.redisson.api.PendingResult;
import org.redisson.api.RFuture;
import org.redisson.api.RStream;
import org.redisson.api.RedissonClient;
import org.redisson.api.StreamGroup;
import org.redisson.api.StreamInfo;
import org.redisson.api.StreamMessageId;
import org.redisson.api.stream.StreamAddArgs;
import org.redisson.api.stream.StreamCreateGroupArgs;
import org.redisson.api.stream.StreamMultiReadArgs;
import org.redisson.api.stream.StreamPendingRangeArgs;
import org.redisson.api.stream.StreamRangeArgs;
import org.redisson.api.stream.StreamReadArgs;
import org.redisson.api.stream.StreamReadGroupArgs;
import org.redisson.api.stream.StreamTrimArgs;

final class Streams {
  static StreamMessageId id(long time) {
    return new StreamMessageId(time, 0);
  }

  static void add(RStream<String, Integer> stream, int... times) {
    for (int time : times) stream.add(id(time), StreamAddArgs.entry("n", time));
  }

  static void entries(RedissonClient one, RedissonClient other) throws Exception {
    RStream<String, Integer> stream = one.getStream("stream");
    StreamMessageId now = stream.add(StreamAddArgs.entries("a", 1, "b", 2));
    Check.check(now.getId0() > 0 && stream.range(now, now).equals(Map.of(now, Map.of("a", 1, "b", 2))), "an entry of now");
    Check.is("one that goes", 1, stream.remove(now, id(9)));
    Check.is("an emptied stream", 0, stream.size());
    stream.delete();

    add(stream, 1, 2, 3, 4, 5);
    Check.is("range", "{1-0={n=1}, 2-0={n=2}}", stream.range(2, StreamMessageId.MIN, StreamMessageId.MAX));
    Check.is("range without its ends", "{3-0={n=3}}", stream.range(StreamRangeArgs.startIdExclusive(id(2)).endIdExclusive(id(4))));
    Check.is("from behind", "{5-0={n=5}, 4-0={n=4}}", stream.rangeReversed(2, StreamMessageId.MAX, StreamMessageId.MIN));
    Check.is("trim by length", 1, stream.trim(StreamTrimArgs.maxLen(4).noLimit()));
    Check.is("trim by ID", 1, stream.trim(StreamTrimArgs.minId(id(3)).noLimit()));
    Check.is("trim about", 0, stream.trimNonStrict(StreamTrimArgs.maxLen(1).limit(100)));
    stream.add(id(6), StreamAddArgs.entry("n", 6).noMakeStream().trim().maxLen(2).noLimit());
    Check.is("what is left", "{5-0={n=5}, 6-0={n=6}}", stream.range(StreamMessageId.MIN, StreamMessageId.MAX));

    add(one.getStream("second"), 1);
    RStream<String, Integer> seen = other.getStream("stream");
    Check.is("read", "{5-0={n=5}}", seen.read(StreamReadArgs.greaterThan(id(4)).count(1)));
    Check.is("read of two", "{stream={6-0={n=6}}, second={1-0={n=1}}}",
        seen.read(StreamMultiReadArgs.greaterThan(id(5), "second", StreamMessageId.ALL)));
    Check.is("read in vain", "{}", seen.read(StreamReadArgs.greaterThan(StreamMessageId.NEWEST).timeout(Duration.ofMillis(50))));
    RFuture<Map<StreamMessageId, Map<String, Integer>>> waiting =
        seen.readAsync(StreamReadArgs.greaterThan(id(6)).timeout(Duration.ofSeconds(20)));
    add(stream, 7);
    Check.is("read that waits", "{7-0={n=7}}", waiting.get(20, TimeUnit.SECONDS));
  }

  static void groups(RedissonClient one, RedissonClient other) throws Exception {
    RStream<String, Integer> stream = one.getStream("groups");
    stream.createGroup(StreamCreateGroupArgs.name("g").id(StreamMessageId.ALL).makeStream());
    RFuture<Map<StreamMessageId, Map<String, Integer>>> waiting = other.<String, Integer>getStream("groups")
        .readGroupAsync("g", "a", StreamReadGroupArgs.neverDelivered().timeout(Duration.ofSeconds(20)));
    add(stream, 1);
    Check.is("one that waits", "{1-0={n=1}}", waiting.get(20, TimeUnit.SECONDS));
    add(stream, 2, 3, 4, 5);
    Check.is("what is new", "{2-0={n=2}, 3-0={n=3}}", stream.readGroup("g", "a", StreamReadGroupArgs.neverDelivered().count(2)));
    Check.is("for another", "{4-0={n=4}, 5-0={n=5}}", stream.readGroup("g", "b", StreamReadGroupArgs.neverDelivered()));
    Check.is("again", "{3-0={n=3}}", stream.readGroup("g", "a", StreamReadGroupArgs.greaterThan(id(2))));
    Check.is("acknowledged", 1, stream.ack("g", id(1), id(9)));
    PendingResult pending = stream.getPendingInfo("g");
    Check.is("pending", "4 2-0 5-0 {a=2, b=2}",
        pending.getTotal() + " " + pending.getLowestId() + " " + pending.getHighestId() + " " + pending.getConsumerNames());
    Check.is("pending of one", List.of(id(2) + " 1", id(3) + " 2"),
        stream.listPending(StreamPendingRangeArgs.groupName("g").startId(StreamMessageId.MIN).endId(StreamMessageId.MAX).count(10)
            .consumerName("a")).stream().map(entry -> entry.getId() + " " + entry.getLastTimeDelivered()).toList());
    Check.is("pending for an hour", "[]",
        stream.listPending("g", StreamMessageId.MIN, StreamMessageId.MAX, 1, TimeUnit.HOURS, 10));
    Check.is("pending, with what is in them", "{4-0={n=4}, 5-0={n=5}}",
        stream.pendingRange("g", "b", StreamMessageId.MIN, StreamMessageId.MAX, 10));
    Check.is("claimed", "{2-0={n=2}}", stream.claim("g", "c", 0, TimeUnit.SECONDS, id(2), id(9)));
    Check.is("claimed, the IDs", "[3-0]", stream.fastClaim("g", "c", 0, TimeUnit.SECONDS, id(3)));
    stream.remove(id(4));
    AutoClaimResult<String, Integer> claimed = stream.autoClaim("g", "d", 0, TimeUnit.SECONDS, StreamMessageId.MIN, 2);
    Check.is("claimed by itself", "4-0 {2-0={n=2}, 3-0={n=3}} []",
        claimed.getNextId() + " " + claimed.getMessages() + " " + claimed.getDeletedIds());
    FastAutoClaimResult rest = stream.fastAutoClaim("g", "d", 0, TimeUnit.SECONDS, id(4), 10);
    Check.is("claimed by itself, the IDs", "0-0 [5-0]", rest.getNextId() + " " + rest.getIds());

    StreamInfo<String, Integer> info = stream.getInfo();
    Check.is("info", "4 1 5-0 4-0 5 1-0 {n=1} {n=5}", info.getLength() + " " + info.getGroups() + " " + info.getLastGeneratedId()
        + " " + info.getMaxDeletedEntryId() + " " + info.getEntriesAdded() + " " + info.getRecordedFirstEntryId()
        + " " + info.getFirstEntry().getData() + " " + info.getLastEntry().getData());
    StreamGroup group = stream.listGroups().get(0);
    Check.is("groups", "g 4 3 5-0 5 0", group.getName() + " " + group.getConsumers() + " " + group.getPending() + " "
        + group.getLastDeliveredId() + " " + group.getEntriesRead() + " " + group.getLag());
    Check.is("consumers", List.of("a 0", "b 0", "c 0", "d 3"),
        stream.listConsumers("g").stream().map(consumer -> consumer.getName() + " " + consumer.getPending()).toList());
    stream.createConsumer("g", "e");
    Check.is("a consumer that goes", 3, stream.removeConsumer("g", "d"));
    stream.updateGroupMessageId("g", id(3));
    Check.is("nothing is kept", "{5-0={n=5}}", stream.readGroup("g", "e", StreamReadGroupArgs.neverDelivered().noAck()));
    Check.is("nothing is pending", 0, stream.getPendingInfo("g").getTotal());
    stream.removeGroup("g");
    Check.is("no group", "[]", stream.listGroups());
  }

  static void all(RedissonClient one, RedissonClient other) throws Exception {
    entries(one, other);
    groups(one, other);
  }
}
