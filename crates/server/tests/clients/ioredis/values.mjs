// A script of each type with ioredis. `other` is a second client with the same options.
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

export const range = (count, make) => Array.from({ length: count }, (_, i) => make(i));
const sorted = (values) => [...values].sort();

// Members with scores: flat and as text in RESP2, in pairs in RESP3.
const pairs = (reply) => {
  const flat = reply.flat();
  return range(flat.length / 2, (i) => [flat[2 * i], Number(flat[2 * i + 1])]);
};

function all(stream) {
  const found = [];
  return new Promise((resolve, reject) => {
    stream.on('data', (page) => found.push(...page));
    stream.on('end', () => resolve(found));
    stream.on('error', reject);
  });
}

// Runs `change` once the call that `wait` starts is blocked; gives what the call returned.
export async function blocked(client, wait, change) {
  const waiting = wait();
  for (let i = 0; !/blocked_clients:1\r/.test(await client.info('clients')); i++) {
    assert.ok(i < 500, 'nobody was ever blocked');
    await sleep(10);
  }
  await change();
  return waiting;
}

async function hashes(client) {
  assert.equal(await client.hset('h', 'a', 1), 1);
  assert.equal(await client.hset('h', { a: 2, b: 'x', c: 1.5 }), 2);
  assert.equal(await client.hmset('h', new Map([['b', 'y']])), 'OK');
  assert.equal(await client.hget('h', 'b'), 'y');
  assert.equal(await client.hget('h', 'missing'), null);
  assert.deepEqual(await client.hmget('h', 'a', 'missing', 'b'), ['2', null, 'y']);
  assert.deepEqual({ ...(await client.hgetall('h')) }, { a: '2', b: 'y', c: '1.5' });
  assert.deepEqual({ ...(await client.hgetall('missing')) }, {});
  assert.equal((await client.hgetBuffer('h', 'b')).toString('hex'), '79');
  assert.equal(await client.hincrby('h', 'a', 40), 42);
  assert.equal(await client.hincrbyfloat('h', 'c', 0.25), '1.75');
  assert.equal(await client.hlen('h'), 3);
  assert.equal(await client.hexists('h', 'b'), 1);
  assert.equal(await client.hstrlen('h', 'c'), 4);
  assert.deepEqual(sorted(await client.hkeys('h')), ['a', 'b', 'c']);
  assert.deepEqual(sorted(await client.hvals('h')), ['1.75', '42', 'y']);
  assert.equal(await client.hsetnx('h', 'a', '9'), 0);
  assert.equal(await client.hdel('h', 'b', 'missing'), 1);
  assert.deepEqual(sorted(pairs(await client.hrandfield('h', 5, 'WITHVALUES'))), [['a', 42], ['c', 1.75]]);
  const large = Object.fromEntries(range(2000, (i) => [`field:${i}`, `value:${i}`]));
  assert.equal(await client.hset('large', large), 2000);
  const found = await all(client.hscanStream('large', { count: 50 }));
  assert.deepEqual(Object.fromEntries(range(2000, (i) => found.slice(2 * i, 2 * i + 2))), large);
  assert.equal((await all(client.hscanStream('large', { match: 'field:1?', count: 200 }))).length, 20);
  await assert.rejects(client.lpush('h', '1'), /WRONGTYPE/);
}

async function fieldDeadlines(client) {
  await client.hset('d', { a: '1', b: '2' });
  assert.deepEqual(await client.hexpire('d', 100, 'FIELDS', 2, 'a', 'missing'), [1, -2]);
  assert.deepEqual(await client.hpexpire('d', 50, 'FIELDS', 1, 'b'), [1]);
  const [a, missing] = await client.httl('d', 'FIELDS', 2, 'a', 'missing');
  assert.ok(a > 90 && a <= 100 && missing === -2);
  assert.deepEqual(await client.hpersist('d', 'FIELDS', 1, 'a'), [1]);
  await sleep(100);
  assert.deepEqual({ ...(await client.hgetall('d')) }, { a: '1' });
  assert.equal(await client.call('HSETEX', 'd', 'EX', '100', 'FIELDS', '1', 'e', '5'), 1);
  assert.deepEqual(await client.call('HGETEX', 'd', 'PERSIST', 'FIELDS', '1', 'e'), ['5']);
  assert.deepEqual(await client.call('HGETDEL', 'd', 'FIELDS', '2', 'e', 'missing'), ['5', null]);
}

async function lists(client, other) {
  assert.equal(await client.rpush('l', 'a', 'b', 'c'), 3);
  assert.equal(await client.lpush('l', 'z'), 4);
  assert.deepEqual(await client.lrange('l', 0, -1), ['z', 'a', 'b', 'c']);
  assert.equal(await client.lpop('l'), 'z');
  assert.equal(await client.rpop('l'), 'c');
  assert.equal(await client.lpop('missing'), null);
  assert.equal(await client.linsert('l', 'BEFORE', 'b', 'between'), 3);
  assert.equal(await client.lindex('l', 1), 'between');
  assert.equal(await client.lpos('l', 'b'), 2);
  assert.equal(await client.lset('l', 0, 'A'), 'OK');
  assert.equal(await client.lrem('l', 1, 'between'), 1);
  assert.equal(await client.rpush('l', ...range(10, String)), 12);
  assert.deepEqual(await client.lpop('l', 2), ['A', 'b']);
  assert.equal(await client.ltrim('l', 2, -3), 'OK');
  assert.equal(await client.lmove('l', 'l2', 'LEFT', 'RIGHT'), '2');
  assert.equal(await client.rpoplpush('l', 'l2'), '7');
  assert.deepEqual(await client.lmpop(2, 'missing', 'l', 'LEFT', 'COUNT', 2), ['l', ['3', '4']]);
  assert.deepEqual(await client.sort('l', 'DESC'), ['6', '5']);

  const push = () => client.rpush('w2', 'job');
  assert.equal(await other.blpop('nothing', 0.05), null);
  assert.deepEqual(await blocked(client, () => other.blpop('w1', 'w2', 10), push), ['w2', 'job']);
  assert.deepEqual(await blocked(client, () => other.brpop(['w1', 'w2'], 0), push), ['w2', 'job']);
  assert.equal(await blocked(client, () => other.blmove('w2', 'done', 'LEFT', 'RIGHT', 10), push), 'job');
  assert.equal(await blocked(client, () => other.brpoplpush('w2', 'done', 10), push), 'job');
  assert.deepEqual(await blocked(client, () => other.blmpop(10, 1, 'w2', 'LEFT'), push), ['w2', ['job']]);
  assert.deepEqual(await client.lrange('done', 0, -1), ['job', 'job']);
  assert.equal(await client.exists('w2'), 0);
}

async function sets(client) {
  assert.equal(await client.sadd('s', 'a', 'b', 'c'), 3);
  assert.equal(await client.sadd('s', ['a', 'd']), 1);
  assert.deepEqual(sorted(await client.smembers('s')), ['a', 'b', 'c', 'd']);
  assert.deepEqual(await client.smembers('missing'), []);
  assert.equal(await client.sismember('s', 'a'), 1);
  assert.deepEqual(await client.smismember('s', 'a', 'x'), [1, 0]);
  assert.equal(await client.sadd('t', 'c', 'd', 'e'), 3);
  assert.deepEqual(sorted(await client.sinter('s', 't')), ['c', 'd']);
  assert.deepEqual(sorted(await client.sunion('s', 't')), ['a', 'b', 'c', 'd', 'e']);
  assert.deepEqual(sorted(await client.sdiff('s', 't')), ['a', 'b']);
  assert.equal(await client.sintercard(2, 's', 't', 'LIMIT', 1), 1);
  assert.equal(await client.sinterstore('to', 's', 't'), 2);
  assert.equal(await client.sunionstore('to', 's', 't'), 5);
  assert.equal(await client.sdiffstore('to', 's', 't'), 2);
  assert.equal(await client.smove('s', 't', 'a'), 1);
  assert.equal(await client.srem('s', 'b', 'x'), 1);
  assert.equal(await client.scard('s'), 2);
  assert.deepEqual(sorted(await client.srandmember('s', 5)), ['c', 'd']);
  assert.deepEqual(sorted(await client.spop('t', 10)), ['a', 'c', 'd', 'e']);
  assert.equal(await client.spop('t'), null);
  const members = range(2000, (i) => `m:${i}`);
  assert.equal(await client.sadd('large', members), 2000);
  assert.deepEqual(sorted(await all(client.sscanStream('large', { count: 50 }))), sorted(members));
}

async function sortedSets(client) {
  assert.equal(await client.zadd('z', 1, 'a', 2.5, 'b', 3, 'c'), 3);
  assert.equal(await client.zadd('z', 'NX', 5, 'a'), 0);
  assert.equal(await client.zadd('z', 'GT', 'CH', 1.5, 'a'), 1);
  assert.equal(Number(await client.zadd('z', 'INCR', 0.5, 'a')), 2);
  assert.equal(Number(await client.zincrby('z', 0.5, 'a')), 2.5);
  assert.equal(Number(await client.zscore('z', 'a')), 2.5);
  assert.equal(await client.zscore('z', 'x'), null);
  assert.deepEqual((await client.zmscore('z', 'a', 'x')).map((s) => s && Number(s)), [2.5, null]);
  assert.deepEqual(await client.zrange('z', 0, -1), ['a', 'b', 'c']);
  assert.deepEqual(pairs(await client.zrange('z', 0, 0, 'REV', 'WITHSCORES')), [['c', 3]]);
  assert.deepEqual(await client.zrange('z', 2, '(3', 'BYSCORE'), ['a', 'b']);
  assert.deepEqual(await client.zrangebyscore('z', '-inf', '+inf', 'LIMIT', 1, 1), ['b']);
  assert.deepEqual(pairs(await client.zrevrangebyscore('z', 3, 2.6, 'WITHSCORES')), [['c', 3]]);
  assert.equal(await client.zrank('z', 'c'), 2);
  assert.equal(await client.zrevrank('z', 'x'), null);
  assert.deepEqual((await client.zrank('z', 'b', 'WITHSCORE')).map(Number), [1, 2.5]);
  assert.equal(await client.zcount('z', 2.6, 3), 1);
  assert.equal(await client.zrem('z', 'c', 'x'), 1);
  assert.equal(await client.zadd('lex', ...[...'abcde'].flatMap((m) => [0, m])), 5);
  assert.deepEqual(await client.zrangebylex('lex', '[b', '(d'), ['b', 'c']);
  assert.equal(await client.zlexcount('lex', '-', '+'), 5);
  assert.equal(await client.zadd('y', 10, 'b', 4, 'd'), 2);
  assert.deepEqual(pairs(await client.zunion(2, 'z', 'y', 'WITHSCORES')), [['a', 2.5], ['d', 4], ['b', 12.5]]);
  assert.deepEqual(pairs(await client.zdiff(2, 'z', 'y', 'WITHSCORES')), [['a', 2.5]]);
  assert.equal(await client.zinterstore('to', 2, 'z', 'y', 'WEIGHTS', 2, 1, 'AGGREGATE', 'MAX'), 1);
  assert.equal(Number(await client.zscore('to', 'b')), 10);
  assert.equal(await client.zrangestore('to', 'z', 0, 0), 1);
  assert.deepEqual(pairs(await client.zpopmin('y')), [['d', 4]]);
  assert.deepEqual(pairs(await client.zpopmax('y', 2)), [['b', 10]]);
  const [key, popped] = await client.zmpop(1, 'z', 'MIN', 'COUNT', 2);
  assert.deepEqual([key, pairs(popped)], ['z', [['a', 2.5], ['b', 2.5]]]);
}

async function largeSortedSets(client, other) {
  assert.equal(await client.zadd('large', ...range(2000, (i) => [i / 2, `m:${i}`]).flat(), '+inf', 'top'), 2001);
  assert.equal(Number((await client.zscore('large', 'top')).toString().replace('inf', 'Infinity')), Infinity);
  assert.equal(await client.zremrangebyrank('large', -1, -1), 1);
  const found = pairs(await all(client.zscanStream('large', { count: 50 })));
  assert.deepEqual(found.sort((x, y) => x[1] - y[1]), range(2000, (i) => [`m:${i}`, i / 2]));
  assert.equal(await client.zremrangebyscore('large', 10, 19.5), 20);
  assert.equal(await client.zrank('large', 'm:40'), 20);

  const add = () => client.zadd('w2', 1.5, 'm');
  const flat = (reply) => [...reply.slice(0, 2), Number(reply[2])];
  assert.equal(await other.bzpopmin('nothing', 0.05), null);
  assert.deepEqual(flat(await blocked(client, () => other.bzpopmin('w1', 'w2', 10), add)), ['w2', 'm', 1.5]);
  assert.deepEqual(flat(await blocked(client, () => other.bzpopmax('w2', 10), add)), ['w2', 'm', 1.5]);
  const [key, popped] = await blocked(client, () => other.bzmpop(10, 1, 'w2', 'MIN'), add);
  assert.deepEqual([key, pairs(popped)], ['w2', [['m', 1.5]]]);
}

async function hyperloglogs(client) {
  const near = (count, expected) => assert.ok(Math.abs(count - expected) < expected * 0.03, `${count}`);
  assert.equal(await client.pfadd('p', ...range(1000, String)), 1);
  assert.equal(await client.pfadd('p', '1'), 0);
  near(await client.pfcount('p'), 1000);
  await client.pfadd('q', ...range(1000, (i) => i + 1000));
  near(await client.pfcount('p', 'q'), 2000);
  assert.equal(await client.pfmerge('pq', 'p', 'q'), 'OK');
  near(await client.pfcount('pq'), 2000);
}

export async function everyType(client, other) {
  for (const script of [hashes, fieldDeadlines, lists, sets, sortedSets, largeSortedSets, hyperloglogs]) {
    await client.flushdb();
    await script(client, other);
  }
}
