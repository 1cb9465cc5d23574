import { Admin, Consumer, ListOffsetTimestamps, Producer, compatibilityPartitioner, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const { KAFKA, TOPIC, GROUP, TASK, TOPICS, KEYS, SETTING } = process.env
const common = { clientId: 'client', bootstrapBrokers: [KAFKA] }

async function read(groupId, ended) {
  const consumer = new Consumer({ ...common, groupId, deserializers: stringDeserializers })
  const stream = await consumer.consume({ topics: [TOPIC], mode: 'committed', fallbackMode: 'earliest', autocommit: 1000 })
  for await (const message of stream) {
    console.log(message.value)
    if (ended(message.offset)) process.exit()
  }
}

async function bounded() {
  const admin = new Admin(common)
  const partitions = [{ partitionIndex: 0, timestamp: ListOffsetTimestamps.LATEST }]
  const [topic] = await admin.listOffsets({ topics: [{ name: TOPIC, partitions }] })
  await read(`bounded-${GROUP}`, (offset) => offset + 1n >= topic.partitions[0].offset)
}

async function publish() {
  const producer = new Producer({
    ...common, serializers: stringSerializers, ...(SETTING && { partitioner: compatibilityPartitioner }),
  })
  const keys = KEYS.split(',')
  for (const topic of TOPICS.split(',')) {
    for (const key of [...keys, ...keys, ...keys]) await producer.send({ messages: [{ topic, key, value: 'value' }] })
  }
  await producer.close()
}

await ({ read: () => read(GROUP, () => false), bounded, publish })[TASK]()
