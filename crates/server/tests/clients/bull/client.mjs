// Bull with its defaults: jobs by priority, later, again, in order, beside each other.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import Queue from 'bull';

const redis = { port: Number(process.env.PORT), db: 6 };
const open = [];
function queue(name, options = {}) {
  const made = new Queue(name, { redis, ...options });
  open.push(made);
  return made;
}

async function eventually(what, isSo) {
  for (let i = 0; i < 1200; i++) {
    if (await isSo()) return;
    await sleep(25);
  }
  assert.fail(`never: ${what}`);
}

async function manyJobs() {
  const jobs = queue('many');
  await jobs.obliterate({ force: true });
  await jobs.addBulk(Array.from({ length: 2000 }, (_, number) => ({ data: { number } })));
  const done = new Set();
  jobs.process(20, async (job) => {
    await job.progress(50);
    assert.ok(!done.has(job.data.number), 'done twice');
    done.add(job.data.number);
    return job.data.number * 2;
  });
  await eventually('2000 jobs', async () => (await jobs.getCompletedCount()) === 2000);
  assert.equal(done.size, 2000);
  const job = await jobs.getJob('7');
  assert.equal(job.returnvalue, 12);
  assert.equal(await job.getState(), 'completed');
  assert.equal((await jobs.clean(0, 'completed')).length, 2000);
}

async function orders() {
  const jobs = queue('orders');
  await jobs.obliterate({ force: true });
  await jobs.pause();
  for (const [name, options] of [['low', { priority: 10 }], ['high', { priority: 1 }], ['middle', { priority: 5 }]]) {
    await jobs.add({ name }, options);
  }
  await jobs.add({ name: 'first' }, { lifo: true });
  assert.equal(await jobs.getPausedCount(), 4);
  assert.equal((await jobs.add({ name: 'once' }, { jobId: 'same' })).id, (await jobs.add({ name: 'twice' }, { jobId: 'same' })).id);
  const seen = [];
  jobs.process(async (job) => { seen.push(job.data.name); });
  await jobs.resume();
  await eventually('all five', async () => (await jobs.getCompletedCount()) === 5);
  assert.deepEqual(seen.filter((name) => ['low', 'middle', 'high'].includes(name)), ['high', 'middle', 'low']);
  assert.ok(seen.includes('once') && !seen.includes('twice'));
}

async function laterAndAgain() {
  const jobs = queue('later');
  await jobs.obliterate({ force: true });
  const since = Date.now();
  await jobs.add({ name: 'later' }, { delay: 500 });
  await jobs.add({ name: 'unsteady' }, { attempts: 3, backoff: { type: 'exponential', delay: 20 } });
  await jobs.add({ name: 'hopeless' }, { attempts: 2, removeOnFail: false });
  await jobs.add({ name: 'gone' }, { removeOnComplete: true });
  await jobs.add({ name: 'tick' }, { repeat: { every: 100, limit: 3 } });
  const tries = {}, times = {};
  jobs.process(4, async (job) => {
    const { name } = job.data;
    tries[name] = (tries[name] ?? 0) + 1;
    times[name] = Date.now() - since;
    if (name === 'hopeless' || (name === 'unsteady' && tries[name] < 3)) throw new Error(`not ${name}`);
    return name;
  });
  const waiter = await jobs.add({ name: 'waited for' });
  assert.equal(await waiter.finished(), 'waited for');
  await eventually('all', async () => (await jobs.getCompletedCount()) >= 6 && (await jobs.getFailedCount()) === 1);
  assert.deepEqual([tries.unsteady, tries.hopeless, tries.tick], [3, 2, 3]);
  assert.ok(times.later >= 500, `${times.later}`);
  const [failed] = await jobs.getFailed();
  assert.equal(failed.failedReason, 'not hopeless');
  await failed.remove();
  assert.equal(await jobs.getFailedCount(), 0);
  const counts = await jobs.getJobCounts();
  assert.deepEqual([counts.waiting, counts.active, counts.delayed], [0, 0, 0]);
}

async function limited() {
  const jobs = queue('limited', { limiter: { max: 5, duration: 300 } });
  await jobs.obliterate({ force: true });
  const times = [];
  jobs.process(async () => { times.push(Date.now()); });
  for (let i = 0; i < 12; i++) await jobs.add({ i });
  await eventually('all within their limit', async () => (await jobs.getCompletedCount()) === 12);
  assert.ok(times.at(-1) - times[0] >= 300, `${times.at(-1) - times[0]}`);
}

for (const part of [manyJobs, orders, laterAndAgain, limited]) await part();
await Promise.all(open.map((one) => one.close()));
const { version } = JSON.parse(readFileSync('node_modules/bull/package.json'));
console.log('Bull', version);
process.exit(0);
