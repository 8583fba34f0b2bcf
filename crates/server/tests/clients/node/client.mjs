// node-redis with its defaults, and in RESP3.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createClient, WatchError } from 'redis';
import { allMessages } from './messages.mjs';
import { everyType } from './values.mjs';

const url = `redis://localhost:${process.env.PORT}`;

async function exercise(client) {
  await client.flushAll();
  assert.equal(await client.set('k', 'v'), 'OK');
  assert.equal(await client.get('k'), 'v');
  assert.equal(await client.get('missing'), null);
  assert.equal(await client.set('k', 'w', { NX: true }), null);
  assert.equal(await client.set('k', 'w', { GET: true }), 'v');
  assert.equal(await client.setEx('t', 100, 'x'), 'OK');
  assert.ok((await client.ttl('t')) > 90);
  assert.equal(await client.incrBy('n', 42), 42);
  await client.mSet({ a: '1', b: '2' });
  assert.deepEqual(await client.mGet(['a', 'b', 'missing']), ['1', '2', null]);
  assert.equal(await client.exists(['a', 'missing']), 1);
  assert.equal(await client.type('a'), 'string');
  assert.equal(await client.del(['a', 'b']), 2);
  assert.equal(await client.setBit('bits', 7, 1), 0);
  assert.equal(await client.bitCount('bits'), 1);

  // Sent in one go.
  await Promise.all(Array.from({ length: 500 }, (_, i) => client.set(`scan:${i}`, `${i}`)));
  const seen = new Set();
  for await (const keys of client.scanIterator({ MATCH: 'scan:*', COUNT: 50 })) {
    for (const key of Array.isArray(keys) ? keys : [keys]) seen.add(key);
  }
  assert.equal(seen.size, 500);

  assert.deepEqual(await client.multi().set('x', '1').incr('x').get('x').exec(), ['OK', 2, '2']);
  await client.watch('x');
  const other = client.duplicate();
  await other.connect();
  await other.set('x', '7');
  await assert.rejects(client.multi().incr('x').exec(), WatchError);
  other.destroy();

  assert.equal(await client.ping(), 'PONG');
  assert.match(await client.info('server'), /redis_version/);
  assert.ok((await client.clientInfo()).id > 0);
  assert.ok('maxmemory' in (await client.configGet('maxmemory')));
  assert.ok((await client.dbSize()) > 500);
  assert.ok((await client.commandCount()) > 80);
  await assert.rejects(client.sendCommand(['NOSUCH']), /unknown command/);
}

for (const options of [{}, { RESP: 3 }, { RESP: 2 }, { database: 2, name: 'tester' }]) {
  const client = createClient({ url, ...options });
  client.on('error', (error) => { throw error; });
  await client.connect();
  await exercise(client);
  const other = client.duplicate();
  await other.connect();
  await everyType(client, other);
  await allMessages(client, options.database ?? 0);
  await other.close();
  await client.close();
}
const { version } = JSON.parse(readFileSync('node_modules/redis/package.json'));
console.log('node-redis', version);
