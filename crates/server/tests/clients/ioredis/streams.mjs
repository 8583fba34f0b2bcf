// Streams with ioredis. `other` is a second client with the same options.
import assert from 'node:assert/strict';
import { blocked, range } from './values.mjs';

// Maps are flat in RESP2, and objects or maps in RESP3.
const fields = (reply) => {
  if (!Array.isArray(reply)) return reply instanceof Map ? Object.fromEntries(reply) : { ...reply };
  return Object.fromEntries(range(reply.length / 2, (i) => [reply[2 * i], reply[2 * i + 1]]));
};

// What streams gave, in lists of two: pairs in RESP2, a map in RESP3.
const streams = (reply) => (reply === null || Array.isArray(reply) ? reply : Object.entries(fields(reply)));

async function entries(client, other) {
  assert.match(await client.xadd('now', '*', 'a', 'b'), /^\d+-0$/);
  assert.equal(await client.xadd('none', 'NOMKSTREAM', '*', 'a', 'b'), null);
  for (const [i, id] of ['1-0', '1-1', '2-0', '3-0'].entries()) assert.equal(await client.xadd('s', id, 'n', i), id);
  await assert.rejects(client.xadd('s', '3-0', 'a', 'b'), /equal or smaller than the target stream top item/);
  assert.equal(await client.xlen('s'), 4);
  assert.deepEqual(await client.xrange('s', '-', '+', 'COUNT', 2), [['1-0', ['n', '0']], ['1-1', ['n', '1']]]);
  assert.deepEqual(await client.xrange('s', '(1-1', '2'), [['2-0', ['n', '2']]]);
  assert.deepEqual(await client.xrevrange('s', '+', '3'), [['3-0', ['n', '3']]]);
  assert.deepEqual(await client.xrange('missing', '-', '+'), []);
  const [[id, [name, value]]] = await client.xrangeBuffer('s', '2', '2');
  assert.deepEqual([id, name, value].map((bytes) => bytes.toString('hex')), ['322d30', '6e', '32']);
  assert.equal(await client.xdel('s', '1-1', '9-9'), 1);
  assert.equal(await client.xadd('s', 'MAXLEN', 2, '4-0', 'n', 4), '4-0');
  assert.equal(await client.xtrim('s', 'MINID', '4-0'), 1);
  assert.deepEqual(await client.xrange('s', '-', '+'), [['4-0', ['n', '4']]]);

  const pipeline = client.pipeline();
  for (let i = 1; i <= 1000; i++) pipeline.xadd('large', `${i}-0`, 'n', i);
  assert.ok((await pipeline.exec()).every(([error, added], i) => error === null && added === `${i + 1}-0`));
  assert.equal(await client.xtrim('large', 'MAXLEN', '~', 500), 500);
  assert.deepEqual(await client.xrange('large', '-', '+', 'COUNT', 1), [['501-0', ['n', '501']]]);

  const read = async (...more) => streams(await other.xread(...more));
  assert.deepEqual(await read('STREAMS', 's', 'large', '0', '998'), [['s', [['4-0', ['n', '4']]]], ['large', [['999-0', ['n', '999']], ['1000-0', ['n', '1000']]]]]);
  assert.equal(await read('STREAMS', 's', '$'), null);
  assert.equal(await read('BLOCK', 20, 'STREAMS', 's', '$'), null);
  const waited = await blocked(client, () => read('BLOCK', 10_000, 'STREAMS', 'new', 's', '$', '$'), () => client.xadd('s', '5-0', 'n', 5));
  assert.deepEqual(waited, [['s', [['5-0', ['n', '5']]]]]);
  await assert.rejects(client.lpush('s', '1'), /WRONGTYPE/);
}

async function groups(client, other) {
  await assert.rejects(client.xgroup('CREATE', 's', 'g', '0'), /requires the key to exist/);
  assert.equal(await client.xgroup('CREATE', 's', 'g', '0', 'MKSTREAM'), 'OK');
  await assert.rejects(client.xgroup('CREATE', 's', 'g', '0'), /^ReplyError: BUSYGROUP/);
  const read = async (by, consumer, from, ...more) => streams(await by.xreadgroup('GROUP', 'g', consumer, ...more, 'STREAMS', 's', from));
  assert.equal(await read(client, 'a', '>'), null);
  const waited = await blocked(client, () => read(other, 'a', '>', 'BLOCK', 10_000), () => client.xadd('s', '1-0', 'n', 1));
  assert.deepEqual(waited, [['s', [['1-0', ['n', '1']]]]]);
  for (const n of [2, 3, 4, 5]) assert.equal(await client.xadd('s', `${n}-0`, 'n', n), `${n}-0`);
  assert.deepEqual(await read(client, 'a', '>', 'COUNT', 2), [['s', [['2-0', ['n', '2']], ['3-0', ['n', '3']]]]]);
  assert.deepEqual(await read(client, 'b', '>'), [['s', [['4-0', ['n', '4']], ['5-0', ['n', '5']]]]]);
  assert.deepEqual(await read(client, 'b', '4'), [['s', [['5-0', ['n', '5']]]]]);
  assert.deepEqual(await client.xpending('s', 'g'), [5, '1-0', '5-0', [['a', '3'], ['b', '2']]]);
  assert.equal(await client.xack('s', 'g', '1-0', '9-0'), 1);
  const pending = async (...more) => (await client.xpending('s', 'g', ...more)).map(([id, consumer, idle, times]) => {
    assert.ok(idle >= 0 && idle < 60_000, `${idle}`);
    return `${id} ${consumer} ${times}`;
  });
  assert.deepEqual(await pending('-', '+', 10), ['2-0 a 1', '3-0 a 1', '4-0 b 1', '5-0 b 2']);
  assert.deepEqual(await pending('IDLE', 3_600_000, '-', '+', 10), []);
  assert.deepEqual(await client.xclaim('s', 'g', 'c', 0, '2-0', '9-0'), [['2-0', ['n', '2']]]);
  assert.deepEqual(await client.xclaim('s', 'g', 'c', 0, '3-0', 'JUSTID'), ['3-0']);
  assert.deepEqual(await client.xclaim('s', 'g', 'c', 3_600_000, '4-0'), []);
  assert.equal(await client.xdel('s', '4-0'), 1);
  assert.deepEqual(await client.xautoclaim('s', 'g', 'd', 0, '-', 'COUNT', 2), ['4-0', [['2-0', ['n', '2']], ['3-0', ['n', '3']]], []]);
  assert.deepEqual(await client.xautoclaim('s', 'g', 'd', 0, '4-0', 'JUSTID'), ['0-0', ['5-0'], ['4-0']]);
  assert.deepEqual(await pending('-', '+', 10, 'd'), ['2-0 d 3', '3-0 d 2', '5-0 d 2']);
  assert.equal(await client.xgroup('CREATECONSUMER', 's', 'g', 'e'), 1);
  assert.equal(await client.xgroup('DELCONSUMER', 's', 'g', 'd'), 3);
  assert.equal(await client.xgroup('SETID', 's', 'g', '3-0'), 'OK');
  assert.deepEqual(await read(client, 'e', '>', 'NOACK'), [['s', [['5-0', ['n', '5']]]]]);
  assert.deepEqual(await client.xpending('s', 'g'), [0, null, null, null]);
  const told = () => read(other, 'a', '>', 'BLOCK', 0).catch((error) => error.message);
  const gone = await blocked(client, told, () => client.xgroup('DESTROY', 's', 'g'));
  assert.equal(gone, 'NOGROUP the consumer group this client was blocked on no longer exists');
}

async function info(client) {
  for (const n of [1, 2, 3]) assert.equal(await client.xadd('s', `${n}-0`, 'n', n), `${n}-0`);
  assert.equal(await client.xgroup('CREATE', 's', 'g', '0'), 'OK');
  await client.xreadgroup('GROUP', 'g', 'a', 'COUNT', 1, 'STREAMS', 's', '>');
  const told = fields(await client.xinfo('STREAM', 's'));
  assert.ok(told['radix-tree-keys'] > 0 && told['radix-tree-nodes'] > 0);
  delete told['radix-tree-keys'];
  delete told['radix-tree-nodes'];
  const both = { length: 3, 'last-generated-id': '3-0', 'max-deleted-entry-id': '0-0', 'entries-added': 3, 'recorded-first-entry-id': '1-0' };
  assert.deepEqual(told, { ...both, groups: 1, 'first-entry': ['1-0', ['n', '1']], 'last-entry': ['3-0', ['n', '3']] });
  const group = { name: 'g', consumers: 1, pending: 1, 'last-delivered-id': '1-0', 'entries-read': 1, lag: 2 };
  assert.deepEqual((await client.xinfo('GROUPS', 's')).map(fields), [group]);
  const [consumer] = (await client.xinfo('CONSUMERS', 's', 'g')).map(fields);
  assert.ok(consumer.idle < 60_000 && consumer.name === 'a' && consumer.pending === 1);
  const full = fields(await client.xinfo('STREAM', 's', 'FULL', 'COUNT', 2));
  for (const [field, value] of Object.entries(both)) assert.equal(full[field], value);
  assert.deepEqual(full.entries, [['1-0', ['n', '1']], ['2-0', ['n', '2']]]);
  const [first] = full.groups.map(fields);
  assert.deepEqual([first.name, first['pel-count'], first.pending[0][0], first.pending[0][1]], ['g', 1, '1-0', 'a']);
  const [reader] = first.consumers.map(fields);
  assert.deepEqual([reader.name, reader['pel-count'], reader.pending[0][0]], ['a', 1, '1-0']);
  await assert.rejects(client.xinfo('STREAM', 'missing'), /no such key/);
  assert.equal(await client.type('s'), 'stream');
}

export async function allOfStreams(client, other) {
  for (const script of [entries, groups, info]) {
    await client.flushdb();
    await script(client, other);
  }
}
