// go-redis with its defaults, and in RESP2.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func check(ok bool, what string, got ...any) {
	if !ok {
		log.Fatalf("%s: %v", what, got)
	}
}

func exercise(r *redis.Client) {
	check(r.FlushAll(ctx).Err() == nil, "FLUSHALL")
	check(r.Set(ctx, "k", "v", 0).Val() == "OK", "SET")
	check(r.Get(ctx, "k").Val() == "v", "GET")
	check(errors.Is(r.Get(ctx, "missing").Err(), redis.Nil), "GET of a missing key")
	set, err := r.SetNX(ctx, "k", "w", time.Minute).Result()
	check(!set && err == nil, "SETNX", set, err)
	check(r.Set(ctx, "t", "x", time.Minute).Err() == nil, "SET EX")
	ttl := r.TTL(ctx, "t").Val()
	check(ttl > 50*time.Second && ttl <= time.Minute, "TTL", ttl)
	check(r.IncrBy(ctx, "n", 42).Val() == 42, "INCRBY")
	check(r.IncrByFloat(ctx, "f", 0.5).Val() == 0.5, "INCRBYFLOAT")
	check(r.MSet(ctx, "a", 1, "b", 2).Err() == nil, "MSET")
	values := r.MGet(ctx, "a", "b", "missing").Val()
	check(fmt.Sprint(values) == "[1 2 <nil>]", "MGET", values)
	check(r.Exists(ctx, "a", "b", "missing").Val() == 2, "EXISTS")
	check(r.Type(ctx, "a").Val() == "string", "TYPE")
	check(r.SetBit(ctx, "bits", 7, 1).Err() == nil && r.BitCount(ctx, "bits", nil).Val() == 1, "bits")
	check(r.Rename(ctx, "a", "c").Err() == nil && r.Del(ctx, "c").Val() == 1, "RENAME, DEL")

	pipe := r.Pipeline()
	for i := range 500 {
		pipe.Set(ctx, fmt.Sprintf("scan:%d", i), i, 0)
	}
	_, err = pipe.Exec(ctx)
	check(err == nil, "pipeline", err)
	seen := map[string]bool{}
	iterator := r.Scan(ctx, 0, "scan:*", 50).Iterator()
	for iterator.Next(ctx) {
		seen[iterator.Val()] = true
	}
	check(iterator.Err() == nil && len(seen) == 500, "SCAN", iterator.Err(), len(seen))

	var x *redis.IntCmd
	_, err = r.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "x", 1, 0)
		x = p.Incr(ctx, "x")
		return nil
	})
	check(err == nil && x.Val() == 2, "MULTI", err)
	err = r.Watch(ctx, func(tx *redis.Tx) error {
		r.Set(ctx, "x", 7, 0)
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Incr(ctx, "x")
			return nil
		})
		return err
	}, "x")
	check(errors.Is(err, redis.TxFailedErr), "WATCH", err)

	var group sync.WaitGroup
	for range 50 {
		group.Add(1)
		go func() {
			defer group.Done()
			check(r.Incr(ctx, "together").Err() == nil, "INCR from many connections")
		}()
	}
	group.Wait()
	check(r.Get(ctx, "together").Val() == "50", "INCR from many connections")

	info, err := r.Info(ctx, "server").Result()
	check(err == nil && strings.Contains(info, "redis_version"), "INFO", err)
	check(r.ClientID(ctx).Val() > 0, "CLIENT ID")
	check(len(r.ConfigGet(ctx, "maxmemory").Val()) == 1, "CONFIG GET")
	commands, err := r.Command(ctx).Result()
	check(err == nil && commands["get"] != nil, "COMMAND", err)
	err = r.Do(ctx, "NOSUCH").Err()
	check(err != nil && strings.Contains(err.Error(), "unknown command"), "an unknown command", err)
}

func main() {
	addr := "localhost:" + os.Getenv("PORT")
	for _, options := range []*redis.Options{
		{Addr: addr},
		{Addr: addr, Protocol: 2},
		{Addr: addr, DB: 3, ClientName: "tester"},
	} {
		r := redis.NewClient(options)
		exercise(r)
		other := redis.NewClient(options)
		everyType(r, other)
		allMessages(r)
		check(other.Close() == nil && r.Close() == nil, "close")
	}
	fmt.Println("go-redis", redis.Version())
}
