// kafkajs against the broker. Prints each check; ends with 1 if one failed.
'use strict'
const { execFile, execFileSync } = require('node:child_process')
const { promisify, isDeepStrictEqual } = require('node:util')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')

// kafkajs brings gzip only. Of lz4 in JavaScript there's only one with blocks that depend on each other, which no broker takes.
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const BOOTSTRAP = process.env.INTEROP_BOOTSTRAP
const PARTITIONS = 3
const kafka = new Kafka({
  clientId: 'interop', brokers: [BOOTSTRAP], logLevel: logLevel.NOTHING, retry: { retries: 60, initialRetryTime: 50, maxRetryTime: 500 },
})
let made = 0
const fresh = (name) => `${name}-${process.pid}-${made++}`
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const range = (from, to, step = 1) => Array.from({ length: Math.ceil((to - from) / step) }, (_, i) => from + i * step)

function equal(found, expected, what) {
  let at = 0
  while (at < found.length && at < expected.length && isDeepStrictEqual(found[at], expected[at])) at++
  if (at === found.length && at === expected.length) return
  throw new Error(`${what}: ${found.length} found, ${expected.length} expected; they part at ${at}: found ` +
    `${JSON.stringify(found.slice(at, at + 5))}, expected ${JSON.stringify(expected.slice(at, at + 5))}`)
}

async function broker(command) {
  const [program, ...rest] = process.env.INTEROP_BROKER.split(' ')
  await promisify(execFile)(program, [...rest, command])
}

async function withAdmin(use) {
  const admin = kafka.admin()
  await admin.connect()
  try { return await use(admin) } finally { await admin.disconnect() }
}

async function topic(name, numPartitions = PARTITIONS) {
  const t = fresh(name)
  await withAdmin((admin) => admin.createTopics({ topics: [{ topic: t, numPartitions, replicationFactor: 1 }], waitForLeaders: true }))
  return t
}

// All records by partition, up to what the admin says is the end. kafkajs can read in a group only.
async function read(t, partitions = PARTITIONS, readUncommitted = false) {
  const end = Object.fromEntries((await withAdmin((a) => a.fetchTopicOffsets(t))).map((o) => [o.partition, Number(o.high)]))
  const found = range(0, partitions).map(() => [])
  const reached = range(0, partitions).map(() => 0)
  const consumer = kafka.consumer({ groupId: fresh('reader'), readUncommitted, sessionTimeout: 10000, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic: t, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    // Batches say how far they reach, markers and aborted records included; kafkajs gives empty ones too.
    eachBatchAutoResolve: true,
    eachBatch: async ({ batch }) => {
      for (const m of batch.messages) found[batch.partition].push(m)
      reached[batch.partition] = Number(batch.lastOffset()) + 1
    },
  })
  const until = Date.now() + 30000
  // The last offsets may be a marker's, of which kafkajs says nothing: then there's silence for a while.
  let quiet = 0
  let before = -1
  while (range(0, partitions).some((p) => reached[p] < end[p]) && quiet < 15) {
    if (Date.now() > until) throw new Error(`no end of ${t}: ${reached}, ${JSON.stringify(end)}`)
    await sleep(100)
    const now = found.reduce((sum, f) => sum + f.length, 0)
    quiet = now === before && now > 0 ? quiet + 1 : 0
    before = now
  }
  await consumer.disconnect()
  return found
}
const values = async (...a) => (await read(...a)).map((partition) => partition.map((m) => String(m.value)))

const checks = []
const check = (what, run) => checks.push({ what, run })

check('codecs: produce and consume: every record with its offset, key, headers in order, under none, gzip, snappy, and stored under it', async () => {
  for (const [name, compression] of Object.entries({ none: 0, gzip: 1, snappy: 2 })) {
    const t = await topic(`codec-${name}`, 1)
    const p = kafka.producer({ idempotent: true })
    await p.connect()
    const sent = range(0, 300).map((i) => ({
      partition: 0, key: `key-${i % 7}`, value: `value ${i} `.repeat(20), headers: { same: ['1', `${i}`] }, timestamp: `${1700000000000 + i}`,
    }))
    for (let i = 0; i < sent.length; i += 50) {
      const [report] = await p.send({ topic: t, compression, messages: sent.slice(i, i + 50) })
      equal([report.baseOffset], [`${i}`], 'the offset of the report')
    }
    await p.disconnect()
    const [found] = await read(t, 1)
    equal(found.map((m) => [m.offset, `${m.key}`, `${m.value}`, m.headers.same.map(String), m.timestamp]),
      sent.map((m, i) => [`${i}`, m.key, m.value, m.headers.same, m.timestamp]), `records under ${name}`)
    // What is read back doesn't show whether it was compressed.
    const [python, script] = process.env.INTEROP_STORED.split(' ')
    const lines = execFileSync(python, [script, t, '0']).toString().trim().split('\n')
    equal([...new Set(lines.map((line) => line.split(' ')[1]))], [name], `codecs of the stored batches sent under ${name}`)
  }
})

check('times: the offset of a time, the first and the last offset', async () => {
  const t = await topic('times', 1)
  const p = kafka.producer()
  await p.connect()
  for (const i of range(0, 50)) await p.send({ topic: t, messages: [{ partition: 0, value: `${i}`, timestamp: `${1700000000000 + i * 1000}` }] })
  await p.disconnect()
  await withAdmin(async (a) => {
    const found = []
    for (const s of [0, 1, 41000, 49000]) found.push((await a.fetchTopicOffsetsByTimestamp(t, 1700000000000 + s))[0].offset)
    equal(found, ['0', '1', '41', '49'], 'offsets of times')
    const [{ low, high }] = await a.fetchTopicOffsets(t)
    equal([low, high], ['0', '50'], 'first and last offset')
  })
})

check('killed broker: an idempotent producer over two kill -9 of the broker; nothing lost, nothing twice, in order', async () => {
  const t = await topic('killed')
  // One in flight, or kafkajs mixes up its own sequences on a retry.
  const p = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await p.connect()
  const count = 120
  const kills = []
  for (const n of range(0, count)) {
    if (n === count / 3 || n === (2 * count) / 3) kills.push(broker('restart'))
    await p.send({ topic: t, messages: range(0, 15).map((i) => ({ partition: i % PARTITIONS, value: `${n * 15 + i}` })) })
  }
  await Promise.all(kills)
  await p.disconnect()
  const found = await values(t)
  for (const partition of range(0, PARTITIONS)) {
    equal(found[partition], range(partition, count * 15, PARTITIONS).map(String), `partition ${partition}`)
  }
})

check("transactions: committed ones are seen, aborted ones aren't; a second producer under the same id fences the first", async () => {
  const t = await topic('transactions')
  const transactionalId = fresh('id')
  const open = async () => {
    const p = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1, retry: { retries: 5 } })
    await p.connect()
    return p
  }
  const committed = range(0, PARTITIONS).map(() => [])
  const there = range(0, PARTITIONS).map(() => [])
  const first = await open()
  for (const n of range(0, 30)) {
    const transaction = await first.transaction()
    await transaction.send({ topic: t, messages: range(0, 6).map((i) => ({ partition: i % PARTITIONS, value: `${n}/${i}` })) })
    for (const i of range(0, 6)) {
      there[i % PARTITIONS].push(`${n}/${i}`)
      if (n % 3 !== 1) committed[i % PARTITIONS].push(`${n}/${i}`)
    }
    await (n % 3 === 1 ? transaction.abort() : transaction.commit())
  }
  const open1 = await first.transaction()
  await open1.send({ topic: t, messages: [{ partition: 0, value: 'left open' }] })
  const second = await open()
  const transaction = await second.transaction()
  await transaction.send({ topic: t, messages: [{ partition: 0, value: 'of the second' }] })
  await transaction.commit()
  there[0].push('left open', 'of the second')
  committed[0].push('of the second')
  let fenced
  try { await open1.commit() } catch (error) { fenced = error }
  const expected = ['PRODUCER_FENCED', 'INVALID_PRODUCER_EPOCH']
  if (!fenced || !expected.includes(fenced.type)) throw new Error(`the zombie: ${fenced && fenced.message}`)
  await Promise.all([first, second].map((p) => p.disconnect()))
  const seen = await values(t)
  const all = await values(t, PARTITIONS, true)
  for (const p of range(0, PARTITIONS)) {
    equal(seen[p], committed[p], `read_committed ${p}`)
    equal(all[p], there[p], `read_uncommitted ${p}`)
  }
})

check('group: two members, one joins and leaves in the middle; every record comes', async () => {
  const t = await topic('group', 4)
  const groupId = fresh('group')
  const seen = new Map()
  const assigned = {}
  const member = async (name) => {
    const c = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 200, rebalanceTimeout: 5000, maxWaitTimeInMs: 100 })
    c.on(c.events.GROUP_JOIN, ({ payload }) => { assigned[name] = (payload.memberAssignment[t] || []).length })
    await c.connect()
    await c.subscribe({ topic: t, fromBeginning: true })
    await c.run({
      autoCommitInterval: 100,
      eachMessage: async ({ partition, message }) => {
        const at = `${partition}/${message.offset}`
        if (seen.has(at)) equal([seen.get(at)], [`${message.value}`], 'the same record')
        seen.set(at, `${message.value}`)
      },
    })
    return c
  }
  const p = kafka.producer()
  await p.connect()
  const send = (from, to) => p.send({ topic: t, messages: range(from, to).map((i) => ({ partition: i % 4, value: `${i}` })) })
  const until = async (condition, what) => {
    for (const end = Date.now() + 40000; !condition(); await sleep(50)) {
      if (Date.now() > end) throw new Error(`never: ${what}; ${JSON.stringify(assigned)}, ${seen.size} seen`)
    }
  }
  const members = []
  try {
    members.push(await member('first'))
    await send(0, 200)
    await until(() => assigned.first === 4 && seen.size === 200, 'the first has all')
    members.push(await member('second'))
    await until(() => assigned.first === 2 && assigned.second === 2, 'each has two')
    await send(200, 400)
    await until(() => seen.size === 400, '400 are seen')
    await members[0].disconnect()
    await until(() => assigned.second === 4, 'the second has all')
    await send(400, 600)
    await until(() => seen.size === 600, 'all are seen')
    await sleep(300)
  } finally {
    for (const c of members) await c.disconnect()
    await p.disconnect()
  }
  for (const n of range(0, 4)) equal(range(0, 150).map((o) => seen.get(`${n}/${o}`)), range(n, 600, 4).map(String), `partition ${n}`)
  const [{ partitions }] = await withAdmin((a) => a.fetchOffsets({ groupId, topics: [t] }))
  equal(partitions.sort((a, b) => a.partition - b.partition).map((o) => o.offset), ['150', '150', '150', '150'], 'committed offsets')
})

check('exactly once: consume, transform, produce with offsets in the transaction; every third is aborted; each output once', async () => {
  const source = await topic('source')
  const sink = await topic('sink')
  const groupId = fresh('group')
  const count = 300
  const feed = kafka.producer()
  await feed.connect()
  await feed.send({ topic: source, messages: range(0, count).map((i) => ({ partition: i % PARTITIONS, value: `${i}` })) })
  await feed.disconnect()
  const out = kafka.producer({ transactionalId: fresh('id'), idempotent: true, maxInFlightRequests: 1 })
  await out.connect()
  let n = 0
  let done = 0
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 300, maxBytesPerPartition: 500, maxWaitTimeInMs: 100, retry: { retries: 100, initialRetryTime: 20, maxRetryTime: 20 } })
  await consumer.connect()
  await consumer.subscribe({ topic: source, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    partitionsConsumedConcurrently: 1,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset }) => {
      // A few at a time, so that there are transactions enough.
      for (let at = 0; at < batch.messages.length; at += 10) {
        const messages = batch.messages.slice(at, at + 10)
        for (;;) {
          const transaction = await out.transaction()
          await transaction.send({ topic: sink, messages: messages.map((m) => ({ partition: batch.partition, value: `out ${m.value}` })) })
          const offset = `${Number(messages[messages.length - 1].offset) + 1}`
          await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic: source, partitions: [{ partition: batch.partition, offset }] }] })
          n++
          if (n % 3 === 0) { await transaction.abort(); continue }
          await transaction.commit()
          break
        }
        resolveOffset(messages[messages.length - 1].offset)
        done += messages.length
      }
    },
  })
  for (const end = Date.now() + 40000; done < count; await sleep(50)) if (Date.now() > end) throw new Error(`${done} of ${count} done`)
  await consumer.disconnect()
  await out.disconnect()
  const found = await values(sink)
  for (const p of range(0, PARTITIONS)) equal(found[p], range(p, count, PARTITIONS).map((i) => `out ${i}`), `output ${p}`)
  const [{ partitions }] = await withAdmin((a) => a.fetchOffsets({ groupId, topics: [source] }))
  equal(partitions.sort((a, b) => a.partition - b.partition).map((o) => o.offset), ['100', '100', '100'], 'committed offsets')
})

async function main() {
  let failed = 0
  for (const { what, run } of checks) {
    if (!what.includes(process.env.INTEROP_ONLY || '')) continue
    if ((process.env.INTEROP_SKIP || '').split('|').some(words => words && what.includes(words))) {
      console.log(`    skipped ${what}`)
      continue
    }
    const began = Date.now()
    try {
      await run()
      console.log(`    ok      ${what} (${((Date.now() - began) / 1000).toFixed(1)} s)`)
    } catch (error) {
      failed++
      console.log(`    FAILED  ${what}\n            ${error.stack}`)
    }
  }
  process.exit(failed ? 1 : 0)
}
main()
