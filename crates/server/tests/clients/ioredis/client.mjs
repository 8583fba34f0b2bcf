// ioredis with its defaults, and in RESP2.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { allOfStreams } from './streams.mjs';
import { everyType } from './values.mjs';

async function strings(client) {
  assert.equal(await client.set('k', 'v'), 'OK');
  assert.equal(await client.get('k'), 'v');
  assert.equal(await client.get('missing'), null);
  assert.equal(await client.set('k', 'w', 'NX'), null);
  assert.equal(await client.set('k', 'w', 'EX', 100, 'GET'), 'v');
  assert.ok((await client.ttl('k')) > 90);
  assert.equal(await client.incrby('n', 42), 42);
  assert.equal(await client.mset({ a: '1', b: '2' }), 'OK');
  assert.deepEqual(await client.mget('a', 'b', 'missing'), ['1', '2', null]);
  assert.equal(await client.exists('a', 'missing'), 1);
  assert.equal(await client.setbit('bits', 7, 1), 0);
  const binary = Buffer.from(Array.from({ length: 1 << 20 }, (_, i) => i % 256));
  assert.equal(await client.set('binary', binary), 'OK');
  assert.ok(binary.equals(await client.getBuffer('binary')));
  await assert.rejects(client.call('NOSUCH'), /unknown command/);
  assert.match(await client.info('server'), /redis_version/);
  assert.equal(await client.client('SETNAME', 'tester'), 'OK');
  assert.equal(await client.client('GETNAME'), 'tester');
}

async function transactions(client, other) {
  const pipeline = client.pipeline();
  for (let i = 0; i < 500; i++) pipeline.set(`scan:${i}`, i);
  assert.ok((await pipeline.exec()).every(([error, reply]) => error === null && reply === 'OK'));
  const seen = new Set();
  for await (const keys of client.scanStream({ match: 'scan:*', count: 50, type: 'string' })) {
    for (const key of keys) seen.add(key);
  }
  assert.equal(seen.size, 500);

  const results = await client.multi()
    .set('x', 1).incr('x').hset('h', { a: 1, b: 2 }).hgetall('h').rpush('l', 'x', 'y').lrange('l', 0, -1)
    .sadd('s', 'm').smembers('s').zadd('z', 1.5, 'm').zrange('z', 0, -1).incr('h').exec();
  results[3][1] = { ...results[3][1] };
  assert.match(`${results.pop()[0]}`, /WRONGTYPE/);
  assert.deepEqual(results.map(([, reply]) => reply), ['OK', 2, 2, { a: '1', b: '2' }, 2, ['x', 'y'], 1, ['m'], 1, ['m']]);
  await client.watch('x');
  await other.set('x', 7);
  assert.equal(await client.multi().incr('x').exec(), null);
  await assert.rejects(client.multi().incr('x').call('NOSUCH').exec(), /EXECABORT/);
}

// Messages that come in, and a wait until there are as many as expected.
function inbox(subscriber) {
  const got = [];
  subscriber.on('message', (channel, message) => got.push([channel, message]));
  subscriber.on('pmessage', (pattern, channel, message) => got.push([pattern, channel, message]));
  subscriber.on('smessage', (channel, message) => got.push(['shard', channel, message]));
  return async (...expected) => {
    for (let i = 0; got.length < expected.length && i < 500; i++) await sleep(10);
    assert.deepEqual(got.splice(0), expected);
  };
}

async function messages(client, subscriber, database) {
  const expect = inbox(subscriber);
  assert.equal(await subscriber.subscribe('news', 'sport'), 2);
  assert.equal(await subscriber.psubscribe('n?ws*'), 3);
  assert.equal(await subscriber.ssubscribe('shard'), 1);
  assert.equal(await client.publish('news', 'hello'), 2);
  assert.equal(await client.spublish('shard', 'piece'), 1);
  await expect(['news', 'hello'], ['n?ws*', 'news', 'hello'], ['shard', 'shard', 'piece']);
  assert.deepEqual((await client.pubsub('CHANNELS')).sort(), ['news', 'sport']);
  assert.equal(await client.pubsub('NUMPAT'), 1);
  assert.equal(await subscriber.unsubscribe('news', 'sport'), 1);
  assert.equal(await subscriber.punsubscribe(), 0);
  assert.equal(await subscriber.sunsubscribe(), 0);

  await client.config('SET', 'notify-keyspace-events', 'EA');
  await subscriber.psubscribe(`__keyevent@${database}__:*`);
  await client.hset('h', 'f', 1);
  await client.rpush('l', 1);
  await client.zadd('z', 1, 'm');
  await client.lpop('l');
  await client.set('e', 1, 'PX', 20);
  const events = [['hset', 'h'], ['rpush', 'l'], ['zadd', 'z'], ['lpop', 'l'], ['del', 'l'], ['set', 'e'], ['expire', 'e'], ['expired', 'e']];
  const prefix = `__keyevent@${database}__:`;
  await expect(...events.map(([event, key]) => [`${prefix}*`, `${prefix}${event}`, key]));
  await subscriber.punsubscribe();
  await client.config('SET', 'notify-keyspace-events', '');
}

for (const options of [{}, { protocol: 3 }, { protocol: 2 }, { db: 2, enableAutoPipelining: true }]) {
  const client = new Redis({ port: Number(process.env.PORT), ...options });
  const [other, subscriber] = [client.duplicate(), client.duplicate()];
  for (const script of [strings, transactions]) {
    await client.flushall();
    await script(client, other);
  }
  await everyType(client, other);
  await allOfStreams(client, other);
  await client.flushall();
  await messages(client, subscriber, options.db ?? 0);
  for (const one of [client, other, subscriber]) assert.equal(await one.quit(), 'OK');
}
const { version } = JSON.parse(readFileSync('node_modules/ioredis/package.json'));
console.log('ioredis', version);
