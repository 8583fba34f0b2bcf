// A script of each type with node-redis. `other` is a second client with the same options.
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

const range = (count, make) => Array.from({ length: count }, (_, i) => make(i));
const sorted = (values) => [...values].sort();

async function all(iterator) {
  const found = [];
  for await (const page of iterator) found.push(...page);
  return found;
}

// Runs `change` once the call that `wait` starts is blocked; gives what the call returned.
async function blocked(client, wait, change) {
  const waiting = wait();
  for (let i = 0; !/blocked_clients:1\r/.test(await client.info('clients')); i++) {
    assert.ok(i < 500, 'nobody was ever blocked');
    await sleep(10);
  }
  await change();
  return waiting;
}

async function hashes(client) {
  assert.equal(await client.hSet('h', 'a', 1), 1);
  assert.equal(await client.hSet('h', { a: 2, b: 'x', c: 1.5 }), 2);
  assert.equal(await client.hGet('h', 'a'), '2');
  assert.equal(await client.hGet('h', 'missing'), null);
  assert.deepEqual(await client.hmGet('h', ['a', 'missing', 'b']), ['2', null, 'x']);
  assert.deepEqual({ ...(await client.hGetAll('h')) }, { a: '2', b: 'x', c: '1.5' });
  assert.deepEqual({ ...(await client.hGetAll('missing')) }, {});
  assert.equal(await client.hIncrBy('h', 'a', 40), 42);
  assert.equal(Number(await client.hIncrByFloat('h', 'c', 0.25)), 1.75);
  assert.equal(await client.hLen('h'), 3);
  assert.equal(await client.hExists('h', 'b'), 1);
  assert.equal(await client.hStrLen('h', 'c'), 4);
  assert.deepEqual(sorted(await client.hKeys('h')), ['a', 'b', 'c']);
  assert.deepEqual(sorted(await client.hVals('h')), ['1.75', '42', 'x']);
  assert.equal(await client.hSetNX('h', 'a', '9'), 0);
  assert.equal(await client.hDel('h', ['b', 'missing']), 1);
  const random = await client.hRandFieldCountWithValues('h', 5);
  assert.deepEqual(sorted(random.map(({ field, value }) => `${field}=${value}`)), ['a=42', 'c=1.75']);
  const large = Object.fromEntries(range(2000, (i) => [`field:${i}`, `value:${i}`]));
  assert.equal(await client.hSet('large', large), 2000);
  const entries = await all(client.hScanIterator('large', { COUNT: 50 }));
  assert.deepEqual(Object.fromEntries(entries.map(({ field, value }) => [field, value])), large);
  assert.equal((await all(client.hScanIterator('large', { MATCH: 'field:1?', COUNT: 200 }))).length, 10);
  await assert.rejects(client.lPush('h', '1'), /WRONGTYPE/);
}

async function fieldDeadlines(client) {
  await client.hSet('d', { a: '1', b: '2', c: '3' });
  assert.deepEqual(await client.hExpire('d', ['a', 'missing'], 100), [1, -2]);
  assert.deepEqual(await client.hpExpire('d', 'b', 50), [1]);
  const at = Math.floor(Date.now() / 1000) + 200;
  assert.deepEqual(await client.hExpireAt('d', 'c', at, 'NX'), [1]);
  assert.deepEqual(await client.hExpireAt('d', 'c', at + 1, 'NX'), [0]);
  assert.deepEqual(await client.hExpireTime('d', 'c'), [at]);
  const [a, missing] = await client.hTTL('d', ['a', 'missing']);
  assert.ok(a > 90 && a <= 100 && missing === -2);
  assert.ok((await client.hpTTL('d', 'a'))[0] > 90000);
  assert.deepEqual(await client.hPersist('d', ['a', 'missing']), [1, -2]);
  await sleep(100);
  assert.deepEqual({ ...(await client.hGetAll('d')) }, { a: '1', c: '3' });
  assert.equal(await client.hSetEx('d', { e: '5' }, { expiration: { type: 'EX', value: 100 } }), 1);
  assert.deepEqual(await client.hGetEx('d', ['e'], { expiration: 'PERSIST' }), ['5']);
  assert.deepEqual(await client.hTTL('d', 'e'), [-1]);
  assert.deepEqual(await client.hGetDel('d', ['e', 'missing']), ['5', null]);
}

async function lists(client, other) {
  assert.equal(await client.rPush('l', ['a', 'b', 'c']), 3);
  assert.equal(await client.lPush('l', 'z'), 4);
  assert.deepEqual(await client.lRange('l', 0, -1), ['z', 'a', 'b', 'c']);
  assert.equal(await client.lPop('l'), 'z');
  assert.equal(await client.rPop('l'), 'c');
  assert.equal(await client.lPop('missing'), null);
  assert.equal(await client.lInsert('l', 'BEFORE', 'b', 'between'), 3);
  assert.equal(await client.lIndex('l', 1), 'between');
  assert.equal(await client.lPos('l', 'b'), 2);
  assert.equal(await client.lSet('l', 0, 'A'), 'OK');
  assert.equal(await client.lRem('l', 1, 'between'), 1);
  assert.equal(await client.rPush('l', range(10, String)), 12);
  assert.deepEqual(await client.lPopCount('l', 2), ['A', 'b']);
  assert.equal(await client.lTrim('l', 2, -3), 'OK');
  assert.equal(await client.lMove('l', 'l2', 'LEFT', 'RIGHT'), '2');
  assert.equal(await client.rPopLPush('l', 'l2'), '7');
  assert.deepEqual(await client.lmPop(['missing', 'l'], 'LEFT', { COUNT: 2 }), ['l', ['3', '4']]);
  assert.deepEqual(await client.sort('l', { DIRECTION: 'DESC' }), ['6', '5']);
  assert.equal(await client.lLen('l2'), 2);

  const push = () => client.rPush('w2', 'job');
  assert.equal(await other.blPop('nothing', 0.05), null);
  assert.deepEqual(await blocked(client, () => other.blPop(['w1', 'w2'], 10), push), { key: 'w2', element: 'job' });
  assert.deepEqual(await blocked(client, () => other.brPop('w2', 0), push), { key: 'w2', element: 'job' });
  assert.equal(await blocked(client, () => other.blMove('w2', 'done', 'LEFT', 'RIGHT', 10), push), 'job');
  assert.equal(await blocked(client, () => other.brPopLPush('w2', 'done', 10), push), 'job');
  assert.deepEqual(await blocked(client, () => other.blmPop(10, 'w2', 'LEFT'), push), ['w2', ['job']]);
  assert.deepEqual(await client.lRange('done', 0, -1), ['job', 'job']);
  assert.equal(await client.exists('w2'), 0);
}

async function sets(client) {
  assert.equal(await client.sAdd('s', ['a', 'b', 'c']), 3);
  assert.equal(await client.sAdd('s', ['a', 'd']), 1);
  assert.deepEqual(sorted(await client.sMembers('s')), ['a', 'b', 'c', 'd']);
  assert.deepEqual(await client.sMembers('missing'), []);
  assert.equal(await client.sIsMember('s', 'a'), 1);
  assert.deepEqual(await client.smIsMember('s', ['a', 'x']), [1, 0]);
  assert.equal(await client.sAdd('t', ['c', 'd', 'e']), 3);
  assert.deepEqual(sorted(await client.sInter(['s', 't'])), ['c', 'd']);
  assert.deepEqual(sorted(await client.sUnion(['s', 't'])), ['a', 'b', 'c', 'd', 'e']);
  assert.deepEqual(sorted(await client.sDiff(['s', 't'])), ['a', 'b']);
  assert.equal(await client.sInterCard(['s', 't'], { LIMIT: 1 }), 1);
  assert.equal(await client.sInterStore('to', ['s', 't']), 2);
  assert.equal(await client.sUnionStore('to', ['s', 't']), 5);
  assert.equal(await client.sDiffStore('to', ['s', 't']), 2);
  assert.equal(await client.sMove('s', 't', 'a'), 1);
  assert.equal(await client.sRem('s', ['b', 'x']), 1);
  assert.equal(await client.sCard('s'), 2);
  assert.deepEqual(sorted(await client.sRandMemberCount('s', 5)), ['c', 'd']);
  assert.deepEqual(sorted(await client.sPopCount('t', 10)), ['a', 'c', 'd', 'e']);
  assert.equal(await client.sPop('t'), null);
  const members = range(2000, (i) => `m:${i}`);
  assert.equal(await client.sAdd('large', members), 2000);
  assert.deepEqual(sorted(await all(client.sScanIterator('large', { COUNT: 50 }))), sorted(members));
}

async function sortedSets(client) {
  const scored = (...pairs) => pairs.map(([value, score]) => ({ value, score }));
  assert.equal(await client.zAdd('z', scored(['a', 1], ['b', 2.5], ['c', 3])), 3);
  assert.equal(await client.zAdd('z', scored(['a', 5]), { condition: 'NX' }), 0);
  assert.equal(await client.zAdd('z', scored(['a', 1.5]), { comparison: 'GT', CH: true }), 1);
  assert.equal(await client.zIncrBy('z', 0.5, 'a'), 2);
  assert.equal(await client.zScore('z', 'a'), 2);
  assert.equal(await client.zScore('z', 'x'), null);
  assert.deepEqual(await client.zmScore('z', ['a', 'x', 'b']), [2, null, 2.5]);
  assert.deepEqual(await client.zRange('z', 0, -1), ['a', 'b', 'c']);
  assert.deepEqual(await client.zRangeWithScores('z', 0, 0, { REV: true }), scored(['c', 3]));
  assert.deepEqual(await client.zRange('z', 2, '(3', { BY: 'SCORE' }), ['a', 'b']);
  assert.deepEqual(await client.zRangeByScore('z', '-inf', '+inf', { LIMIT: { offset: 1, count: 1 } }), ['b']);
  assert.equal(await client.zRank('z', 'c'), 2);
  assert.equal(await client.zRevRank('z', 'x'), null);
  assert.deepEqual({ ...(await client.zRankWithScore('z', 'b')) }, { rank: 1, score: 2.5 });
  assert.equal(await client.zCount('z', 2, 3), 3);
  assert.equal(await client.zRem('z', ['c', 'x']), 1);
  assert.equal(await client.zAdd('lex', scored(...[...'abcde'].map((m) => [m, 0]))), 5);
  assert.deepEqual(await client.zRangeByLex('lex', '[b', '(d'), ['b', 'c']);
  assert.equal(await client.zLexCount('lex', '-', '+'), 5);
  assert.equal(await client.zAdd('y', scored(['b', 10], ['d', 4])), 2);
  assert.deepEqual(await client.zUnionWithScores(['z', 'y']), scored(['a', 2], ['d', 4], ['b', 12.5]));
  assert.deepEqual(await client.zDiffWithScores(['z', 'y']), scored(['a', 2]));
  assert.equal(await client.zInterStore('to', [{ key: 'z', weight: 2 }, { key: 'y', weight: 1 }], { AGGREGATE: 'MAX' }), 1);
  assert.equal(await client.zScore('to', 'b'), 10);
  assert.equal(await client.zInterCard(['z', 'y']), 1);
  assert.equal(await client.zRangeStore('to', 'z', 0, 0), 1);
  assert.deepEqual({ ...(await client.zPopMin('y')) }, { value: 'd', score: 4 });
  assert.deepEqual(await client.zPopMaxCount('y', 2), scored(['b', 10]));
  assert.deepEqual(await client.zmPop('z', 'MIN'), { key: 'z', members: scored(['a', 2]) });
  assert.deepEqual(await client.zRandMemberCountWithScores('z', 5), scored(['b', 2.5]));
}

async function largeSortedSets(client, other) {
  const members = range(2000, (i) => ({ value: `m:${i}`, score: i / 2 }));
  assert.equal(await client.zAdd('large', [...members, { value: 'top', score: Infinity }]), 2001);
  assert.equal(await client.zScore('large', 'top'), Infinity);
  assert.equal(await client.zRemRangeByRank('large', -1, -1), 1);
  const found = await all(client.zScanIterator('large', { COUNT: 50 }));
  assert.deepEqual(found.sort((x, y) => x.score - y.score).map((m) => ({ ...m })), members);
  assert.equal(await client.zRemRangeByScore('large', 10, 19.5), 20);
  assert.equal(await client.zRank('large', 'm:40'), 20);

  const add = () => client.zAdd('w2', { value: 'm', score: 1.5 });
  const popped = { key: 'w2', value: 'm', score: 1.5 };
  assert.equal(await other.bzPopMin('nothing', 0.05), null);
  assert.deepEqual({ ...(await blocked(client, () => other.bzPopMin(['w1', 'w2'], 10), add)) }, popped);
  assert.deepEqual({ ...(await blocked(client, () => other.bzPopMax('w2', 10), add)) }, popped);
  assert.deepEqual(await blocked(client, () => other.bzmPop(10, 'w2', 'MIN'), add), {
    key: 'w2',
    members: [{ value: 'm', score: 1.5 }],
  });
}

async function hyperloglogs(client) {
  const near = (count, expected) => assert.ok(Math.abs(count - expected) < expected * 0.03, `${count}`);
  assert.equal(await client.pfAdd('p', range(1000, String)), 1);
  assert.equal(await client.pfAdd('p', '1'), 0);
  near(await client.pfCount('p'), 1000);
  await client.pfAdd('q', range(1000, (i) => `${i + 1000}`));
  near(await client.pfCount(['p', 'q']), 2000);
  assert.equal(await client.pfMerge('pq', ['p', 'q']), 'OK');
  near(await client.pfCount('pq'), 2000);
}

export async function everyType(client, other) {
  for (const script of [hashes, fieldDeadlines, lists, sets, sortedSets, largeSortedSets, hyperloglogs]) {
    await client.flushDb();
    await script(client, other);
  }
  await client.flushDb();
  const results = await client.multi()
    .hSet('h', { a: '1' }).hGetAll('h').rPush('l', ['x', 'y']).lRange('l', 0, -1)
    .sAdd('s', 'm').sMembers('s').zAdd('z', { value: 'm', score: 1.5 }).zRangeWithScores('z', 0, -1).zScore('z', 'm')
    .exec();
  results[1] = { ...results[1] };
  assert.deepEqual(results, [1, { a: '1' }, 2, ['x', 'y'], 1, ['m'], 1, [{ value: 'm', score: 1.5 }], 1.5]);
  for (const [key, type] of [['h', 'hash'], ['l', 'list'], ['s', 'set'], ['z', 'zset']]) {
    assert.equal(await client.type(key), type);
    assert.deepEqual(await all(client.scanIterator({ TYPE: type })), [key]);
  }
}
