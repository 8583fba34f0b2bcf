// A script of each type with go-redis. `other` is a second client with the same options.
package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// is compares what a call gives with what is expected, as they are printed.
func is(what string, expected string) func(value any, err error) {
	return func(value any, err error) {
		if err != nil {
			value = err
		}
		check(fmt.Sprint(value) == expected, what+", expected "+expected, value)
	}
}

// got lets the two values of Result go where one `any` is taken.
func got[T any](value T, err error) (any, error) { return value, err }

func sorted(values []string, err error) (any, error) {
	slices.Sort(values)
	return values, err
}

// blocked runs `change` once the call that `wait` makes is blocked, and gives what the call returned.
func blocked[T any](r *redis.Client, wait func() (T, error), change func()) (any, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result)
	go func() {
		value, err := wait()
		done <- result{value, err}
	}()
	for i := 0; !strings.Contains(r.Info(ctx, "clients").Val(), "blocked_clients:1\r"); i++ {
		check(i < 500, "nobody was ever blocked")
		time.Sleep(10 * time.Millisecond)
	}
	change()
	got := <-done
	return got.value, got.err
}

func collect(iterator *redis.ScanIterator) []string {
	var found []string
	for iterator.Next(ctx) {
		found = append(found, iterator.Val())
	}
	check(iterator.Err() == nil, "an iteration", iterator.Err())
	return found
}

func members(count int) []any {
	made := make([]any, count)
	for i := range made {
		made[i] = fmt.Sprintf("m:%d", i)
	}
	return made
}

func hashes(r, _ *redis.Client) {
	is("HSET", "3")(got(r.HSet(ctx, "h", "a", 2, "b", "x", "c", 1.5).Result()))
	is("HGET", "2")(got(r.HGet(ctx, "h", "a").Result()))
	is("HGET of a missing field", "redis: nil")(got(r.HGet(ctx, "h", "missing").Result()))
	is("HMGET", "[2 <nil> x]")(got(r.HMGet(ctx, "h", "a", "missing", "b").Result()))
	is("HGETALL", "map[a:2 b:x c:1.5]")(got(r.HGetAll(ctx, "h").Result()))
	is("HGETALL of a missing key", "map[]")(got(r.HGetAll(ctx, "missing").Result()))
	is("HINCRBY", "42")(got(r.HIncrBy(ctx, "h", "a", 40).Result()))
	is("HINCRBYFLOAT", "1.75")(got(r.HIncrByFloat(ctx, "h", "c", 0.25).Result()))
	is("HLEN", "3")(got(r.HLen(ctx, "h").Result()))
	is("HEXISTS", "true")(got(r.HExists(ctx, "h", "b").Result()))
	is("HSTRLEN", "1")(got(r.HStrLen(ctx, "h", "b").Result()))
	is("HKEYS", "[a b c]")(sorted(r.HKeys(ctx, "h").Result()))
	is("HVALS", "[1.75 42 x]")(sorted(r.HVals(ctx, "h").Result()))
	is("HSETNX", "false")(got(r.HSetNX(ctx, "h", "a", 9).Result()))
	is("HDEL", "1")(got(r.HDel(ctx, "h", "b", "missing").Result()))
	random := r.HRandFieldWithValues(ctx, "h", 5).Val()
	slices.SortFunc(random, func(x, y redis.KeyValue) int { return strings.Compare(x.Key, y.Key) })
	is("HRANDFIELD", "[{a 42} {c 1.75}]")(random, nil)
	var scanned struct {
		A int     `redis:"a"`
		C float64 `redis:"c"`
	}
	is("HGETALL into a struct", "<nil>")(r.HGetAll(ctx, "h").Scan(&scanned), nil)
	is("HGETALL into a struct", "{42 1.75}")(scanned, nil)

	large := map[string]any{}
	for i := range 2000 {
		large[fmt.Sprintf("field:%d", i)] = fmt.Sprintf("value:%d", i)
	}
	is("HSET of many", "2000")(got(r.HSet(ctx, "large", large).Result()))
	found := collect(r.HScan(ctx, "large", 0, "", 50).Iterator())
	check(len(found) == 4000, "HSCAN", len(found))
	for i := 0; i < len(found); i += 2 {
		check(large[found[i]] == found[i+1], "HSCAN", found[i], found[i+1])
		delete(large, found[i])
	}
	check(len(large) == 0, "HSCAN leaves out fields", large)
	check(len(collect(r.HScan(ctx, "large", 0, "field:1?", 200).Iterator())) == 20, "HSCAN MATCH")
	err := r.LPush(ctx, "h", 1).Err()
	check(redis.HasErrorPrefix(err, "WRONGTYPE"), "LPUSH to a hash", err)
}

func fieldDeadlines(r, _ *redis.Client) {
	is("HSET", "3")(got(r.HSet(ctx, "d", "a", 1, "b", 2, "c", 3).Result()))
	is("HEXPIRE", "[1 -2]")(got(r.HExpire(ctx, "d", 100*time.Second, "a", "missing").Result()))
	is("HPEXPIRE", "[1]")(got(r.HPExpire(ctx, "d", 50*time.Millisecond, "b").Result()))
	at := time.Now().Add(200 * time.Second).Truncate(time.Second)
	is("HEXPIREAT", "[1]")(got(r.HExpireAt(ctx, "d", at, "c").Result()))
	is("HEXPIREAT NX", "[0]")(got(r.HExpireAtWithArgs(ctx, "d", at, redis.HExpireArgs{NX: true}, "c").Result()))
	is("HEXPIRETIME", fmt.Sprintf("[%d]", at.Unix()))(got(r.HExpireTime(ctx, "d", "c").Result()))
	ttl := r.HTTL(ctx, "d", "a", "missing").Val()
	check(len(ttl) == 2 && ttl[0] > 90 && ttl[0] <= 100 && ttl[1] == -2, "HTTL", ttl)
	check(r.HPTTL(ctx, "d", "a").Val()[0] > 90000, "HPTTL")
	is("HPERSIST", "[1 -2]")(got(r.HPersist(ctx, "d", "a", "missing").Result()))
	time.Sleep(100 * time.Millisecond)
	is("HGETALL", "map[a:1 c:3]")(got(r.HGetAll(ctx, "d").Result()))
	options := redis.HSetEXOptions{ExpirationType: redis.HSetEXExpirationEX, ExpirationVal: 100}
	is("HSETEX", "1")(got(r.HSetEXWithArgs(ctx, "d", &options, "e", "5").Result()))
	is("HGETEX", "[5]")(got(r.HGetEXWithArgs(ctx, "d", &redis.HGetEXOptions{ExpirationType: redis.HGetEXExpirationPERSIST}, "e").Result()))
	is("HTTL", "[-1]")(got(r.HTTL(ctx, "d", "e").Result()))
	is("HGETDEL", "[5 ]")(got(r.HGetDel(ctx, "d", "e", "missing").Result()))
	is("HEXISTS", "false")(got(r.HExists(ctx, "d", "e").Result()))
}

func lists(r, other *redis.Client) {
	is("RPUSH", "3")(got(r.RPush(ctx, "l", "a", "b", "c").Result()))
	is("LPUSH", "4")(got(r.LPush(ctx, "l", "z").Result()))
	is("LRANGE", "[z a b c]")(got(r.LRange(ctx, "l", 0, -1).Result()))
	is("LPOP", "z")(got(r.LPop(ctx, "l").Result()))
	is("RPOP", "c")(got(r.RPop(ctx, "l").Result()))
	is("LPOP of a missing key", "redis: nil")(got(r.LPop(ctx, "missing").Result()))
	is("LINSERT", "3")(got(r.LInsertBefore(ctx, "l", "b", "between").Result()))
	is("LINDEX", "between")(got(r.LIndex(ctx, "l", 1).Result()))
	is("LPOS", "2")(got(r.LPos(ctx, "l", "b", redis.LPosArgs{}).Result()))
	is("LSET", "OK")(got(r.LSet(ctx, "l", 0, "A").Result()))
	is("LREM", "1")(got(r.LRem(ctx, "l", 1, "between").Result()))
	is("RPUSH", "7")(got(r.RPush(ctx, "l", 0, 1, 2, 3, 4).Result()))
	is("LPOP of two", "[A b]")(got(r.LPopCount(ctx, "l", 2).Result()))
	is("LTRIM", "OK")(got(r.LTrim(ctx, "l", 1, -1).Result()))
	is("LMOVE", "1")(got(r.LMove(ctx, "l", "l2", "LEFT", "RIGHT").Result()))
	is("RPOPLPUSH", "4")(got(r.RPopLPush(ctx, "l", "l2").Result()))
	key, popped, err := r.LMPop(ctx, "left", 1, "missing", "l").Result()
	is("LMPOP", "l[2]")(fmt.Sprint(key, popped), err)
	is("LRANGE", "[4 1]")(got(r.LRange(ctx, "l2", 0, -1).Result()))
	is("SORT", "[4 1]")(got(r.Sort(ctx, "l2", &redis.Sort{Order: "DESC"}).Result()))

	push := func() { check(r.RPush(ctx, "w2", "job").Err() == nil, "RPUSH") }
	is("BLPOP in vain", "redis: nil")(other.Do(ctx, "BLPOP", "nothing", "0.05").Result())
	is("BLPOP", "[w2 job]")(blocked(r, func() ([]string, error) {
		return other.BLPop(ctx, 10*time.Second, "w1", "w2").Result()
	}, push))
	is("BRPOP", "[w2 job]")(blocked(r, func() ([]string, error) {
		return other.BRPop(ctx, 0, "w2").Result()
	}, push))
	is("BLMOVE", "job")(blocked(r, func() (string, error) {
		return other.BLMove(ctx, "w2", "done", "LEFT", "RIGHT", 10*time.Second).Result()
	}, push))
	is("BRPOPLPUSH", "job")(blocked(r, func() (string, error) {
		return other.BRPopLPush(ctx, "w2", "done", 10*time.Second).Result()
	}, push))
	is("BLMPOP", "w2[job]")(blocked(r, func() (string, error) {
		key, popped, err := other.BLMPop(ctx, 10*time.Second, "left", 1, "w2").Result()
		return fmt.Sprint(key, popped), err
	}, push))
	is("LRANGE", "[job job]")(got(r.LRange(ctx, "done", 0, -1).Result()))
	is("EXISTS", "0")(got(r.Exists(ctx, "w2").Result()))
}

func sets(r, _ *redis.Client) {
	is("SADD", "3")(got(r.SAdd(ctx, "s", "a", "b", "c").Result()))
	is("SADD", "1")(got(r.SAdd(ctx, "s", "a", "d").Result()))
	is("SMEMBERS", "[a b c d]")(sorted(r.SMembers(ctx, "s").Result()))
	is("SMEMBERS of a missing key", "[]")(sorted(r.SMembers(ctx, "missing").Result()))
	is("SMEMBERS as a map", "map[a:{} b:{} c:{} d:{}]")(got(r.SMembersMap(ctx, "s").Result()))
	is("SISMEMBER", "true")(got(r.SIsMember(ctx, "s", "a").Result()))
	is("SMISMEMBER", "[true false]")(got(r.SMIsMember(ctx, "s", "a", "x").Result()))
	is("SADD", "3")(got(r.SAdd(ctx, "t", "c", "d", "e").Result()))
	is("SINTER", "[c d]")(sorted(r.SInter(ctx, "s", "t").Result()))
	is("SUNION", "[a b c d e]")(sorted(r.SUnion(ctx, "s", "t").Result()))
	is("SDIFF", "[a b]")(sorted(r.SDiff(ctx, "s", "t").Result()))
	is("SINTERCARD", "1")(got(r.SInterCard(ctx, 1, "s", "t").Result()))
	is("SINTERSTORE", "2")(got(r.SInterStore(ctx, "to", "s", "t").Result()))
	is("SUNIONSTORE", "5")(got(r.SUnionStore(ctx, "to", "s", "t").Result()))
	is("SDIFFSTORE", "2")(got(r.SDiffStore(ctx, "to", "s", "t").Result()))
	is("SMOVE", "true")(got(r.SMove(ctx, "s", "t", "a").Result()))
	is("SREM", "1")(got(r.SRem(ctx, "s", "b", "x").Result()))
	is("SCARD", "2")(got(r.SCard(ctx, "s").Result()))
	is("SRANDMEMBER", "[c d]")(sorted(r.SRandMemberN(ctx, "s", 5).Result()))
	is("SPOP", "[a c d e]")(sorted(r.SPopN(ctx, "t", 10).Result()))
	is("SPOP of a missing key", "redis: nil")(got(r.SPop(ctx, "t").Result()))
	is("SADD of many", "2000")(got(r.SAdd(ctx, "large", members(2000)...).Result()))
	found := map[string]bool{}
	for _, member := range collect(r.SScan(ctx, "large", 0, "", 50).Iterator()) {
		check(!found[member], "SSCAN gives a member twice", member)
		found[member] = true
	}
	check(len(found) == 2000 && found["m:1999"], "SSCAN", len(found))
}

func sortedSets(r, _ *redis.Client) {
	z := func(score float64, member any) redis.Z { return redis.Z{Score: score, Member: member} }
	is("ZADD", "3")(got(r.ZAdd(ctx, "z", z(1, "a"), z(2.5, "b"), z(3, "c")).Result()))
	is("ZADD NX", "0")(got(r.ZAddNX(ctx, "z", z(5, "a")).Result()))
	is("ZADD GT CH", "1")(got(r.ZAddArgs(ctx, "z", redis.ZAddArgs{GT: true, Ch: true, Members: []redis.Z{z(1.5, "a")}}).Result()))
	is("ZADD INCR", "2")(got(r.ZAddArgsIncr(ctx, "z", redis.ZAddArgs{Members: []redis.Z{z(0.5, "a")}}).Result()))
	is("ZINCRBY", "2.25")(got(r.ZIncrBy(ctx, "z", 0.25, "a").Result()))
	is("ZSCORE", "2.25")(got(r.ZScore(ctx, "z", "a").Result()))
	is("ZSCORE of a missing member", "redis: nil")(got(r.ZScore(ctx, "z", "x").Result()))
	is("ZMSCORE", "[2.25 2.5]")(got(r.ZMScore(ctx, "z", "a", "b").Result()))
	is("ZRANGE", "[a b c]")(got(r.ZRange(ctx, "z", 0, -1).Result()))
	is("ZRANGE WITHSCORES", "[{2.25 a} {2.5 b}]")(got(r.ZRangeWithScores(ctx, "z", 0, 1).Result()))
	is("ZRANGE REV BYSCORE", "[b a]")(got(r.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: "z", Start: "(3", Stop: 2, ByScore: true, Rev: true,
	}).Result()))
	is("ZRANGEBYSCORE", "[b]")(got(r.ZRangeByScore(ctx, "z", &redis.ZRangeBy{Min: "-inf", Max: "+inf", Offset: 1, Count: 1}).Result()))
	is("ZREVRANGEBYSCORE", "[{3 c}]")(got(r.ZRevRangeByScoreWithScores(ctx, "z", &redis.ZRangeBy{Min: "2.6", Max: "3"}).Result()))
	is("ZRANK", "2")(got(r.ZRank(ctx, "z", "c").Result()))
	is("ZREVRANK of a missing member", "redis: nil")(got(r.ZRevRank(ctx, "z", "x").Result()))
	is("ZRANK WITHSCORE", "{1 2.5}")(got(r.ZRankWithScore(ctx, "z", "b").Result()))
	is("ZCOUNT", "1")(got(r.ZCount(ctx, "z", "2.6", "3").Result()))
	is("ZREM", "1")(got(r.ZRem(ctx, "z", "c", "x").Result()))
	is("ZADD", "4")(got(r.ZAdd(ctx, "lex", z(0, "a"), z(0, "b"), z(0, "c"), z(0, "d")).Result()))
	is("ZRANGEBYLEX", "[b c]")(got(r.ZRangeByLex(ctx, "lex", &redis.ZRangeBy{Min: "[b", Max: "(d"}).Result()))
	is("ZLEXCOUNT", "4")(got(r.ZLexCount(ctx, "lex", "-", "+").Result()))
	is("ZADD", "2")(got(r.ZAdd(ctx, "y", z(10, "b"), z(4, "d")).Result()))
	is("ZUNION", "[{2.25 a} {4 d} {12.5 b}]")(got(r.ZUnionWithScores(ctx, redis.ZStore{Keys: []string{"z", "y"}}).Result()))
	is("ZDIFF", "[{2.25 a}]")(got(r.ZDiffWithScores(ctx, "z", "y").Result()))
	is("ZINTERSTORE", "1")(got(r.ZInterStore(ctx, "to", &redis.ZStore{
		Keys: []string{"z", "y"}, Weights: []float64{2, 1}, Aggregate: "MAX",
	}).Result()))
	is("ZRANGE", "[{10 b}]")(got(r.ZRangeWithScores(ctx, "to", 0, -1).Result()))
	is("ZINTERCARD", "1")(got(r.ZInterCard(ctx, 0, "z", "y").Result()))
	is("ZRANGESTORE", "1")(got(r.ZRangeStore(ctx, "to", redis.ZRangeArgs{Key: "z", Start: 0, Stop: 0}).Result()))
	is("ZPOPMIN", "[{4 d}]")(got(r.ZPopMin(ctx, "y").Result()))
	is("ZPOPMAX", "[{10 b}]")(got(r.ZPopMax(ctx, "y", 2).Result()))
	key, popped, err := r.ZMPop(ctx, "min", 1, "z").Result()
	is("ZMPOP", "z [{2.25 a}]")(fmt.Sprint(key, " ", popped), err)
	is("ZRANDMEMBER", "[{2.5 b}]")(got(r.ZRandMemberWithScores(ctx, "z", 5).Result()))
}

func largeSortedSets(r, other *redis.Client) {
	large := make([]redis.Z, 2000)
	for i, member := range members(2000) {
		large[i] = redis.Z{Score: float64(i) / 2, Member: member}
	}
	is("ZADD of many", "2000")(got(r.ZAdd(ctx, "large", large...).Result()))
	is("ZADD", "1")(got(r.ZAdd(ctx, "large", redis.Z{Score: math.Inf(1), Member: "top"}).Result()))
	is("ZSCORE", "+Inf")(got(r.ZScore(ctx, "large", "top").Result()))
	is("ZREMRANGEBYRANK", "1")(got(r.ZRemRangeByRank(ctx, "large", -1, -1).Result()))
	found := collect(r.ZScan(ctx, "large", 0, "", 50).Iterator())
	check(len(found) == 4000, "ZSCAN", len(found))
	scores := map[string]string{}
	for i := 0; i < len(found); i += 2 {
		scores[found[i]] = found[i+1]
	}
	check(len(scores) == 2000 && scores["m:1999"] == "999.5", "ZSCAN", len(scores), scores["m:1999"])
	is("ZREMRANGEBYSCORE", "20")(got(r.ZRemRangeByScore(ctx, "large", "10", "19.5").Result()))
	is("ZRANK", "20")(got(r.ZRank(ctx, "large", "m:40").Result()))

	add := func() { check(r.ZAdd(ctx, "w2", redis.Z{Score: 1.5, Member: "m"}).Err() == nil, "ZADD") }
	is("BZPOPMIN", "&{{1.5 m} w2}")(blocked(r, func() (*redis.ZWithKey, error) {
		return other.BZPopMin(ctx, 10*time.Second, "w1", "w2").Result()
	}, add))
	is("BZPOPMAX", "&{{1.5 m} w2}")(blocked(r, func() (*redis.ZWithKey, error) {
		return other.BZPopMax(ctx, 0, "w2").Result()
	}, add))
	is("BZMPOP", "w2 [{1.5 m}]")(blocked(r, func() (string, error) {
		key, popped, err := other.BZMPop(ctx, 10*time.Second, "min", 1, "w2").Result()
		return fmt.Sprint(key, " ", popped), err
	}, add))
}

func hyperLogLogs(r, _ *redis.Client) {
	near := func(expected int64, keys ...string) {
		count := r.PFCount(ctx, keys...).Val()
		check(count > expected*97/100 && count < expected*103/100, "PFCOUNT", count)
	}
	all := members(2000)
	is("PFADD", "1")(got(r.PFAdd(ctx, "p", all[:1000]...).Result()))
	is("PFADD of the same", "0")(got(r.PFAdd(ctx, "p", all[0]).Result()))
	near(1000, "p")
	is("PFADD", "1")(got(r.PFAdd(ctx, "q", all[1000:]...).Result()))
	near(2000, "p", "q")
	is("PFMERGE", "OK")(got(r.PFMerge(ctx, "pq", "p", "q").Result()))
	near(2000, "pq")
}

func everyType(r, other *redis.Client) {
	for _, script := range []func(r, other *redis.Client){
		hashes, fieldDeadlines, lists, sets, sortedSets, largeSortedSets, hyperLogLogs, entriesOfStreams, groups,
		infoOfStreams,
	} {
		check(r.FlushDB(ctx).Err() == nil, "FLUSHDB")
		script(r, other)
	}
	commands, err := r.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.FlushDB(ctx)
		p.HSet(ctx, "h", "a", 1)
		p.HGetAll(ctx, "h")
		p.RPush(ctx, "l", "x", "y")
		p.LRange(ctx, "l", 0, -1)
		p.SAdd(ctx, "s", "m")
		p.SMembersMap(ctx, "s")
		p.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "m"})
		p.ZRangeWithScores(ctx, "z", 0, -1)
		return nil
	})
	check(err == nil, "MULTI", err)
	is("HGETALL in MULTI", "map[a:1]")(got(commands[2].(*redis.MapStringStringCmd).Result()))
	is("LRANGE in MULTI", "[x y]")(got(commands[4].(*redis.StringSliceCmd).Result()))
	is("SMEMBERS in MULTI", "map[m:{}]")(got(commands[6].(*redis.StringStructMapCmd).Result()))
	is("ZRANGE in MULTI", "[{1.5 m}]")(got(commands[8].(*redis.ZSliceCmd).Result()))
	for key, kind := range map[string]string{"h": "hash", "l": "list", "s": "set", "z": "zset"} {
		is("TYPE", kind)(got(r.Type(ctx, key).Result()))
		is("SCAN TYPE", "["+key+"]")(collect(r.ScanType(ctx, 0, "", 10, kind).Iterator()), nil)
	}
}
