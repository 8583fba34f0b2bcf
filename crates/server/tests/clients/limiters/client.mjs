// rate-limiter-flexible with its defaults, and blocking those that ask for too much.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { Redis } from 'ioredis';
import { BurstyRateLimiter, RateLimiterRedis } from 'rate-limiter-flexible';

const client = new Redis({ port: Number(process.env.PORT), db: 8, enableOfflineQueue: false });
await new Promise((resolve) => client.once('ready', resolve));
await client.flushdb();
const make = (keyPrefix, points, duration, more = {}) => new RateLimiterRedis({ storeClient: client, keyPrefix, points, duration, ...more });

const five = make('five', 5, 60);
const asked = await Promise.allSettled(Array.from({ length: 9 }, () => five.consume('user')));
assert.equal(asked.filter(({ status }) => status === 'fulfilled').length, 5);
const refused = asked.find(({ status }) => status === 'rejected').reason;
assert.ok(refused.msBeforeNext > 50_000 && refused.remainingPoints === 0, `${refused}`);
assert.equal((await five.get('user')).consumedPoints, 9);
await five.reward('user', 6);
assert.equal((await five.consume('user')).remainingPoints, 1);
assert.equal(await five.delete('user'), true);
assert.equal(await five.get('user'), null);

const blocking = make('blocking', 2, 60, { blockDuration: 600 });
await blocking.consume('user', 2);
await assert.rejects(blocking.consume('user'), ({ msBeforeNext }) => msBeforeNext > 500_000);
await blocking.block('other', 100);
await assert.rejects(blocking.consume('other'));

const bursty = new BurstyRateLimiter(make('steady', 2, 1), make('burst', 3, 60));
const burst = await Promise.allSettled(Array.from({ length: 8 }, () => bursty.consume('user')));
assert.equal(burst.filter(({ status }) => status === 'fulfilled').length, 5);
await client.quit();
const { version } = JSON.parse(readFileSync('node_modules/rate-limiter-flexible/package.json'));
console.log('limits, rate-limiter-flexible', version);
