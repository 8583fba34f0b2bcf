// Streams with go-redis. `other` is a second client with the same options.
package main

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// entries lists messages as they were added.
func entries(messages []redis.XMessage, err error) (any, error) {
	found := []string{}
	for _, message := range messages {
		found = append(found, fmt.Sprint(message.ID, message.Values))
	}
	return found, err
}

func streams(read []redis.XStream, err error) (any, error) {
	found := []string{}
	for _, one := range read {
		messages, _ := entries(one.Messages, nil)
		found = append(found, fmt.Sprint(one.Stream, messages))
	}
	return found, err
}

func add(r *redis.Client, stream string, ids ...string) {
	for i, id := range ids {
		args := redis.XAddArgs{Stream: stream, ID: id, Values: []any{"n", i + 1}}
		is("XADD", id)(got(r.XAdd(ctx, &args).Result()))
	}
}

func entriesOfStreams(r, other *redis.Client) {
	add(r, "s", "1-0", "1-1", "2-0", "3-0")
	xadd := func(args redis.XAddArgs) (any, error) { return got(r.XAdd(ctx, &args).Result()) }
	is("XADD NOMKSTREAM", "redis: nil")(xadd(redis.XAddArgs{Stream: "none", NoMkStream: true, Values: []string{"a", "b"}}))
	is("XADD of an ID that is too small", "ERR The ID specified in XADD is equal or smaller than the target stream top item")(
		xadd(redis.XAddArgs{Stream: "s", ID: "3-0", Values: []string{"a", "b"}}))
	is("XADD of a part of an ID", "3-1")(xadd(redis.XAddArgs{Stream: "s", ID: "3-*", Values: map[string]any{"n": 5}}))
	is("XLEN", "5")(got(r.XLen(ctx, "s").Result()))
	is("XLEN of a missing key", "0")(got(r.XLen(ctx, "missing").Result()))
	is("XRANGE", "[1-0map[n:1] 1-1map[n:2] 2-0map[n:3] 3-0map[n:4] 3-1map[n:5]]")(entries(r.XRange(ctx, "s", "-", "+").Result()))
	is("XRANGE of a millisecond", "[1-0map[n:1] 1-1map[n:2]]")(entries(r.XRange(ctx, "s", "1", "1").Result()))
	is("XRANGE without an end", "[1-1map[n:2]]")(entries(r.XRangeN(ctx, "s", "(1-0", "(3-0", 1).Result()))
	is("XREVRANGE", "[3-1map[n:5] 3-0map[n:4]]")(entries(r.XRevRange(ctx, "s", "+", "3").Result()))
	is("XREVRANGE COUNT", "[2-0map[n:3] 1-1map[n:2]]")(entries(r.XRevRangeN(ctx, "s", "2", "-", 2).Result()))
	is("XRANGE of a missing key", "[]")(entries(r.XRange(ctx, "missing", "-", "+").Result()))
	is("XDEL", "1")(got(r.XDel(ctx, "s", "1-1", "9-9").Result()))
	is("XADD MAXLEN", "4-0")(xadd(redis.XAddArgs{Stream: "s", ID: "4-0", MaxLen: 3, Values: []any{"n", 6}}))
	is("XRANGE", "[3-0map[n:4] 3-1map[n:5] 4-0map[n:6]]")(entries(r.XRange(ctx, "s", "-", "+").Result()))
	is("XADD MINID", "5-0")(xadd(redis.XAddArgs{Stream: "s", ID: "5-0", MinID: "3-1", Values: []any{"n", 7}}))
	is("XTRIM MINID", "1")(got(r.XTrimMinID(ctx, "s", "4").Result()))
	is("XTRIM MINID of nothing", "0")(got(r.XTrimMinIDApprox(ctx, "s", "5", 100).Result()))
	is("XTRIM MAXLEN", "1")(got(r.XTrimMaxLen(ctx, "s", 1).Result()))
	is("XRANGE", "[5-0map[n:7]]")(entries(r.XRange(ctx, "s", "-", "+").Result()))

	pipe := r.Pipeline()
	for i := range 1000 {
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: "large", ID: fmt.Sprint(i+1, "-0"), Values: []any{"n", i}})
	}
	_, err := pipe.Exec(ctx)
	check(err == nil, "XADD in a pipeline", err)
	is("XTRIM MAXLEN ~", "500")(got(r.XTrimMaxLenApprox(ctx, "large", 500, 0).Result()))
	is("XREVRANGE", "[1000-0map[n:999]]")(entries(r.XRevRangeN(ctx, "large", "+", "-", 1).Result()))
	is("XRANGE", "[501-0map[n:500]]")(entries(r.XRangeN(ctx, "large", "-", "+", 1).Result()))

	add(r, "t", "1-0", "2-0")
	read := func(block time.Duration, names ...string) func() (any, error) {
		return func() (any, error) {
			return streams(other.XRead(ctx, &redis.XReadArgs{Streams: names, Count: 1, Block: block}).Result())
		}
	}
	is("XREAD", "[s[5-0map[n:7]] t[2-0map[n:2]]]")(read(-1, "s", "t", "0", "1")())
	is("XREAD of nothing", "redis: nil")(read(-1, "s", "t", "$", "$")())
	is("XREAD in vain", "redis: nil")(read(20*time.Millisecond, "s", "$")())
	is("XREAD that waits", "[t[3-0map[n:1]]]")(blocked(r, read(10*time.Second, "s", "t", "$", "$"), func() { add(r, "t", "3-0") }))
	is("XREAD that waits for a key", "[new[0-1map[n:1]]]")(blocked(r, read(0, "new", "0"), func() { add(r, "new", "0-1") }))
	check(redis.HasErrorPrefix(r.LPush(ctx, "s", 1).Err(), "WRONGTYPE"), "LPUSH to a stream")
}

func groups(r, other *redis.Client) {
	is("XGROUP CREATE of a missing key", "ERR The XGROUP subcommand requires the key to exist. "+
		"Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.")(
		got(r.XGroupCreate(ctx, "s", "g", "$").Result()))
	is("XGROUP CREATE MKSTREAM", "OK")(got(r.XGroupCreateMkStream(ctx, "s", "g", "0").Result()))
	is("XGROUP CREATE again", "BUSYGROUP Consumer Group name already exists")(got(r.XGroupCreate(ctx, "s", "g", "$").Result()))
	read := func(consumer, from string, block time.Duration) func() (any, error) {
		return func() (any, error) {
			args := redis.XReadGroupArgs{Group: "g", Consumer: consumer, Streams: []string{"s", from}, Count: 2, Block: block}
			return streams(other.XReadGroup(ctx, &args).Result())
		}
	}
	is("XREADGROUP in vain", "redis: nil")(read("a", ">", 20*time.Millisecond)())
	is("XREADGROUP that waits", "[s[1-0map[n:1]]]")(blocked(r, read("a", ">", 10*time.Second), func() { add(r, "s", "1-0") }))
	add(r, "s", "2-0", "3-0", "4-0", "5-0")
	is("XREADGROUP", "[s[2-0map[n:1] 3-0map[n:2]]]")(read("a", ">", -1)())
	is("XREADGROUP", "[s[4-0map[n:3] 5-0map[n:4]]]")(read("b", ">", -1)())
	is("XREADGROUP of what is pending", "[s[2-0map[n:1] 3-0map[n:2]]]")(read("a", "1-0", -1)())
	is("XREADGROUP of a missing group", "NOGROUP No such key 's' or consumer group 'x' in XREADGROUP with GROUP option")(
		streams(r.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "x", Consumer: "a", Streams: []string{"s", ">"}}).Result()))
	is("XPENDING", "&{5 1-0 5-0 map[a:3 b:2]}")(got(r.XPending(ctx, "s", "g").Result()))
	is("XACK", "1")(got(r.XAck(ctx, "s", "g", "1-0", "9-0").Result()))

	pending := func(args redis.XPendingExtArgs) (any, error) {
		args.Stream, args.Group, args.Start, args.End, args.Count = "s", "g", "-", "+", 10
		found := []string{}
		all, err := r.XPendingExt(ctx, &args).Result()
		for _, one := range all {
			check(one.Idle >= 0 && one.Idle < time.Minute, "XPENDING: idle", one.Idle)
			found = append(found, fmt.Sprint(one.ID, one.Consumer, one.RetryCount))
		}
		return found, err
	}
	is("XPENDING", "[2-0a2 3-0a2 4-0b1 5-0b1]")(pending(redis.XPendingExtArgs{}))
	is("XPENDING of one", "[4-0b1 5-0b1]")(pending(redis.XPendingExtArgs{Consumer: "b"}))
	is("XPENDING IDLE", "[]")(pending(redis.XPendingExtArgs{Idle: time.Hour}))
	claim := redis.XClaimArgs{Stream: "s", Group: "g", Consumer: "c", Messages: []string{"2-0", "3-0", "9-0"}}
	is("XCLAIM", "[2-0map[n:1] 3-0map[n:2]]")(entries(r.XClaim(ctx, &claim).Result()))
	is("XCLAIM JUSTID", "[2-0 3-0]")(got(r.XClaimJustID(ctx, &claim).Result()))
	claim.MinIdle = time.Hour
	is("XCLAIM of nothing that idle", "[]")(entries(r.XClaim(ctx, &claim).Result()))
	is("XDEL", "1")(got(r.XDel(ctx, "s", "4-0").Result()))
	is("XPENDING", "[2-0c3 3-0c3 4-0b1 5-0b1]")(pending(redis.XPendingExtArgs{}))
	auto := redis.XAutoClaimArgs{Stream: "s", Group: "g", Consumer: "d", Start: "-", Count: 2}
	messages, next, err := r.XAutoClaim(ctx, &auto).Result()
	is("XAUTOCLAIM", "[2-0map[n:1] 3-0map[n:2]]")(entries(messages, err))
	is("XAUTOCLAIM: where it goes on", "4-0")(next, nil)
	auto.Start = next
	ids, next, err := r.XAutoClaimJustID(ctx, &auto).Result()
	is("XAUTOCLAIM JUSTID", "[5-0]")(ids, err)
	is("XAUTOCLAIM: where it goes on", "0-0")(next, nil)
	is("XPENDING", "[2-0d4 3-0d4 5-0d1]")(pending(redis.XPendingExtArgs{}))

	is("XGROUP CREATECONSUMER", "1")(got(r.XGroupCreateConsumer(ctx, "s", "g", "e").Result()))
	is("XGROUP DELCONSUMER", "3")(got(r.XGroupDelConsumer(ctx, "s", "g", "d").Result()))
	is("XGROUP SETID", "OK")(got(r.XGroupSetID(ctx, "s", "g", "3-0").Result()))
	is("XREADGROUP NOACK", "[s[5-0map[n:4]]]")(streams(r.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: "g", Consumer: "e", Streams: []string{"s", ">"}, NoAck: true, Block: -1}).Result()))
	is("XPENDING of nothing", "&{0   map[]}")(got(r.XPending(ctx, "s", "g").Result()))
	is("XREADGROUP of a group that goes", "NOGROUP the consumer group this client was blocked on no longer exists")(
		blocked(r, read("a", ">", 0), func() { is("XGROUP DESTROY", "1")(got(r.XGroupDestroy(ctx, "s", "g").Result())) }))
}

func infoOfStreams(r, _ *redis.Client) {
	add(r, "s", "1-0", "2-0", "3-0")
	is("XDEL", "1")(got(r.XDel(ctx, "s", "2-0").Result()))
	is("XGROUP CREATE", "OK")(got(r.XGroupCreate(ctx, "s", "g", "0").Result()))
	is("XGROUP CREATE", "OK")(got(r.XGroupCreate(ctx, "s", "h", "3-0").Result()))
	is("XREADGROUP", "[s[1-0map[n:1]]]")(streams(r.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: "g", Consumer: "a", Streams: []string{"s", ">"}, Count: 1, Block: -1}).Result()))
	is("XGROUP CREATECONSUMER", "1")(got(r.XGroupCreateConsumer(ctx, "s", "g", "b").Result()))

	stream, err := r.XInfoStream(ctx, "s").Result()
	check(err == nil && stream.RadixTreeKeys > 0 && stream.RadixTreeNodes > 0, "XINFO STREAM", err)
	is("XINFO STREAM", "2 2 3-0 2-0 3 1-0")(fmt.Sprint(stream.Length, stream.Groups, " ", stream.LastGeneratedID, " ",
		stream.MaxDeletedEntryID, " ", stream.EntriesAdded, " ", stream.RecordedFirstEntryID), nil)
	is("XINFO STREAM: the first and the last", "[1-0map[n:1] 3-0map[n:3]]")(
		entries([]redis.XMessage{stream.FirstEntry, stream.LastEntry}, nil))
	groups, err := r.XInfoGroups(ctx, "s").Result()
	check(err == nil && len(groups) == 2, "XINFO GROUPS", err, groups)
	for i, expected := range []string{"g 2 1 1-0 0 -1", "h 0 0 3-0 0 0"} {
		g := groups[i]
		is("XINFO GROUPS", expected)(fmt.Sprint(g.Name, " ", g.Consumers, " ", g.Pending, " ", g.LastDeliveredID, " ",
			g.EntriesRead, " ", g.Lag), nil)
	}
	consumers, err := r.XInfoConsumers(ctx, "s", "g").Result()
	check(err == nil && len(consumers) == 2, "XINFO CONSUMERS", err, consumers)
	is("XINFO CONSUMERS", "a 1 b 0")(fmt.Sprint(consumers[0].Name, " ", consumers[0].Pending, " ", consumers[1].Name, " ",
		consumers[1].Pending), nil)
	check(consumers[0].Idle < time.Minute && consumers[1].Idle < time.Minute, "XINFO CONSUMERS: idle", consumers)

	full, err := r.XInfoStreamFull(ctx, "s", 1).Result()
	check(err == nil && len(full.Groups) == 2, "XINFO STREAM FULL", err, full)
	is("XINFO STREAM FULL: entries", "[1-0map[n:1]]")(entries(full.Entries, nil))
	is("XINFO STREAM FULL", "2 3-0 2-0 3 1-0")(fmt.Sprint(full.Length, " ", full.LastGeneratedID, " ", full.MaxDeletedEntryID,
		" ", full.EntriesAdded, " ", full.RecordedFirstEntryID), nil)
	group := full.Groups[0]
	is("XINFO STREAM FULL: a group", "g 1-0 0 1 1 2")(fmt.Sprint(group.Name, " ", group.LastDeliveredID, " ", group.EntriesRead,
		" ", group.PelCount, " ", len(group.Pending), " ", len(group.Consumers)), nil)
	is("XINFO STREAM FULL: what is pending", "1-0 a 1")(fmt.Sprint(group.Pending[0].ID, " ", group.Pending[0].Consumer, " ",
		group.Pending[0].DeliveryCount), nil)
	is("XINFO STREAM FULL: a consumer", "a 1 1-0 1")(fmt.Sprint(group.Consumers[0].Name, " ", group.Consumers[0].PelCount, " ",
		group.Consumers[0].Pending[0].ID, " ", group.Consumers[0].Pending[0].DeliveryCount), nil)
	is("XINFO STREAM of a missing key", "ERR no such key")(r.XInfoStream(ctx, "missing").Val(), r.XInfoStream(ctx, "missing").Err())
	is("TYPE", "stream")(got(r.Type(ctx, "s").Result()))
	is("SCAN TYPE", "[s]")(collect(r.ScanType(ctx, 0, "", 10, "stream").Iterator()), nil)
}
