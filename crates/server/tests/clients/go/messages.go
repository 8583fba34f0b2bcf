// Publish and subscribe with go-redis, keyspace notifications with it.
package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// next checks the next message, as it is printed.
func next(subscriber *redis.PubSub, expected string) {
	message, err := subscriber.ReceiveTimeout(ctx, 5*time.Second)
	check(err == nil, "a message", err, expected)
	check(fmt.Sprint(message) == expected, "a message, expected "+expected, message)
}

func channels(r *redis.Client) {
	subscriber := r.Subscribe(ctx, "news", "sport")
	next(subscriber, "subscribe: news")
	next(subscriber, "subscribe: sport")
	check(subscriber.PSubscribe(ctx, "n?ws*") == nil, "PSUBSCRIBE")
	next(subscriber, "psubscribe: n?ws*")
	is("PUBLISH", "2")(got(r.Publish(ctx, "news", "hello").Result()))
	next(subscriber, "Message<news: hello>")
	next(subscriber, "Message<news: hello>")
	is("PUBSUB CHANNELS", "[news sport]")(sorted(r.PubSubChannels(ctx, "*").Result()))
	is("PUBSUB NUMSUB", "map[news:1 nobody:0]")(got(r.PubSubNumSub(ctx, "news", "nobody").Result()))
	is("PUBSUB NUMPAT", "1")(got(r.PubSubNumPat(ctx).Result()))
	check(subscriber.Ping(ctx, "beat") == nil, "PING")
	next(subscriber, "Pong<beat>")
	check(subscriber.Unsubscribe(ctx, "news") == nil, "UNSUBSCRIBE")
	next(subscriber, "unsubscribe: news")
	check(subscriber.Close() == nil, "close")

	sharded := r.SSubscribe(ctx, "shard")
	next(sharded, "ssubscribe: shard")
	is("SPUBLISH", "1")(got(r.SPublish(ctx, "shard", "piece").Result()))
	next(sharded, "Message<shard: piece>")
	check(sharded.Close() == nil, "close")
}

// Messages through a channel of the language.
func stream(r *redis.Client) {
	subscriber := r.Subscribe(ctx, "news")
	next(subscriber, "subscribe: news")
	messages := subscriber.Channel()
	for i := range 100 {
		is("PUBLISH", "1")(got(r.Publish(ctx, "news", i).Result()))
	}
	for i := range 100 {
		is("a message", fmt.Sprint(i))((<-messages).Payload, nil)
	}
	check(subscriber.Close() == nil, "close")
}

func notifications(r *redis.Client) {
	check(r.ConfigSet(ctx, "notify-keyspace-events", "EA").Err() == nil, "CONFIG SET")
	prefix := fmt.Sprintf("__keyevent@%d__:", r.Options().DB)
	subscriber := r.PSubscribe(ctx, prefix+"*")
	next(subscriber, "psubscribe: "+prefix+"*")
	check(r.HSet(ctx, "h", "f", 1).Err() == nil, "HSET")
	check(r.RPush(ctx, "l", 1).Err() == nil, "RPUSH")
	check(r.SAdd(ctx, "s", 1).Err() == nil, "SADD")
	check(r.ZAdd(ctx, "z", redis.Z{Score: 1, Member: "m"}).Err() == nil, "ZADD")
	check(r.LPop(ctx, "l").Err() == nil, "LPOP")
	check(r.Set(ctx, "e", 1, 20*time.Millisecond).Err() == nil, "SET PX")
	for _, line := range []string{
		"hset h", "rpush l", "sadd s", "zadd z", "lpop l", "del l", "set e", "expire e", "expired e",
	} {
		event, key, _ := strings.Cut(line, " ")
		next(subscriber, fmt.Sprintf("Message<%s%s: %s>", prefix, event, key))
	}
	check(subscriber.Close() == nil, "close")
	check(r.ConfigSet(ctx, "notify-keyspace-events", "").Err() == nil, "CONFIG SET")
}

func allMessages(r *redis.Client) {
	for _, script := range []func(*redis.Client){channels, stream, notifications} {
		check(r.FlushDB(ctx).Err() == nil, "FLUSHDB")
		script(r)
	}
}
