// BullMQ with its defaults: its events are streams, and its markers blocking pops.
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { FlowProducer, Queue, QueueEvents, Worker } from 'bullmq';

const connection = { host: '127.0.0.1', port: Number(process.env.PORT), db: 7, maxRetriesPerRequest: null };
const open = [];
function keep(made) {
  open.push(made);
  return made;
}

async function eventually(what, isSo) {
  for (let i = 0; i < 2400; i++) {
    if (await isSo()) return;
    await sleep(25);
  }
  assert.fail(`never: ${what}`);
}

async function manyJobs(count) {
  const queue = keep(new Queue('many', { connection }));
  await queue.obliterate({ force: true });
  const events = keep(new QueueEvents('many', { connection }));
  await events.waitUntilReady();
  let told = 0;
  events.on('completed', () => { told += 1; });
  const bulk = 1000;
  for (let at = 0; at < count; at += bulk) {
    await queue.addBulk(Array.from({ length: bulk }, (_, i) => ({ name: 'n', data: { number: at + i } })));
  }
  const done = new Set();
  const work = async (job) => {
    assert.ok(!done.has(job.data.number), 'done twice');
    done.add(job.data.number);
    return job.data.number * 2;
  };
  const workers = [0, 1].map(() => keep(new Worker('many', work, { connection, concurrency: 20 })));
  await eventually(`${count} jobs`, async () => (await queue.getCompletedCount()) === count);
  assert.equal(done.size, count);
  await eventually('all are told of', () => told === count);
  await Promise.all(workers.map((worker) => worker.close()));
}

async function ordersAndLater() {
  const queue = keep(new Queue('orders', { connection }));
  await queue.obliterate({ force: true });
  await queue.add('low', {}, { priority: 10 });
  await queue.add('high', {}, { priority: 1 });
  await queue.add('later', {}, { delay: 300 });
  await queue.add('unsteady', {}, { attempts: 3, backoff: { type: 'fixed', delay: 20 } });
  const failed = await queue.add('hopeless', {}, { attempts: 2 });
  await queue.upsertJobScheduler('tick', { every: 100, limit: 3 }, { name: 'tick' });
  const seen = [];
  const tries = {};
  keep(new Worker('orders', async (job) => {
    seen.push(job.name);
    tries[job.name] = (tries[job.name] ?? 0) + 1;
    if (job.name === 'hopeless' || (job.name === 'unsteady' && tries.unsteady < 3)) throw new Error('as it should');
  }, { connection }));
  await eventually('all of them', async () => seen.includes('later') && tries.unsteady === 3 && tries.hopeless === 2 && tries.tick >= 3);
  assert.ok(seen.indexOf('high') < seen.indexOf('low'));
  await eventually('it has failed', async () => (await failed.getState()) === 'failed');
}

async function flows() {
  const producer = keep(new FlowProducer({ connection }));
  const parents = keep(new Queue('parents', { connection }));
  const children = keep(new Queue('children', { connection }));
  await parents.obliterate({ force: true });
  await children.obliterate({ force: true });
  const events = keep(new QueueEvents('parents', { connection }));
  await events.waitUntilReady();
  const flow = await producer.add({
    name: 'sum', queueName: 'parents',
    children: [1, 2, 3].map((value) => ({ name: 'value', queueName: 'children', data: { value } })),
  });
  keep(new Worker('children', async (job) => job.data.value, { connection }));
  keep(new Worker('parents', async (job) => {
    const values = Object.values(await job.getChildrenValues());
    return values.reduce((sum, value) => sum + value, 0);
  }, { connection }));
  assert.equal(await flow.job.waitUntilFinished(events, 30_000), 6);
}

await manyJobs(Number(process.env.JOBS ?? 50_000));
await ordersAndLater();
await flows();
await Promise.all(open.map((made) => made.close()));
console.log('BullMQ');
