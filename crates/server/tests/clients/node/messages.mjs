// Publish and subscribe with node-redis, keyspace notifications with it.
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

// What comes in, and a wait until there is as much as expected.
function inbox() {
  const got = [];
  return {
    listener: (message, channel) => got.push([channel, message]),
    async expect(expected) {
      for (let i = 0; got.length < expected.length && i < 500; i++) await sleep(10);
      assert.deepEqual(got.splice(0), expected);
    },
  };
}

async function channels(client, subscriber) {
  const [plain, pattern, shard] = [inbox(), inbox(), inbox()];
  await subscriber.subscribe(['news', 'sport'], plain.listener);
  await subscriber.pSubscribe('n?ws*', pattern.listener);
  await subscriber.sSubscribe('shard', shard.listener);
  assert.equal(await client.publish('news', 'hello'), 2);
  assert.equal(await client.publish('nobody', 'x'), 0);
  assert.equal(await client.sPublish('shard', 'piece'), 1);
  await plain.expect([['news', 'hello']]);
  await pattern.expect([['news', 'hello']]);
  await shard.expect([['shard', 'piece']]);
  assert.deepEqual((await client.pubSubChannels()).sort(), ['news', 'sport']);
  assert.deepEqual({ ...(await client.pubSubNumSub(['news', 'nobody'])) }, { news: 1, nobody: 0 });
  assert.equal(await client.pubSubNumPat(), 1);
  assert.match(await subscriber.ping('beat'), /beat/);
  await subscriber.unsubscribe('news');
  await subscriber.sUnsubscribe('shard');
  assert.equal(await client.publish('news', 'again'), 1);
  await client.multi().publish('sport', 'in a transaction').incr('x').exec();
  await plain.expect([['sport', 'in a transaction']]);
  await subscriber.unsubscribe();
  await subscriber.pUnsubscribe();
  // Back to commands. In RESP2 this client may go on giving buffers.
  assert.equal(`${await subscriber.get('x')}`, '1');
}

async function notifications(client, subscriber, database) {
  const events = inbox();
  await client.configSet('notify-keyspace-events', 'KEA');
  await subscriber.pSubscribe(`__keyspace@${database}__:*`, events.listener);
  await client.hSet('h', 'f', '1');
  await client.rPush('l', '1');
  await client.sAdd('s', '1');
  await client.zAdd('z', { value: 'm', score: 1 });
  await client.lPop('l');
  await client.set('e', '1', { PX: 20 });
  const expected = ['h hset', 'l rpush', 's sadd', 'z zadd', 'l lpop', 'l del', 'e set', 'e expire', 'e expired'];
  await events.expect(expected.map((line) => line.split(' ')).map(([key, event]) => [`__keyspace@${database}__:${key}`, event]));
  await subscriber.pUnsubscribe();
  await client.configSet('notify-keyspace-events', '');
}

export async function allMessages(client, database) {
  const subscriber = client.duplicate();
  await subscriber.connect();
  for (const script of [channels, notifications]) {
    await client.flushDb();
    await script(client, subscriber, database);
  }
  await subscriber.close();
}
