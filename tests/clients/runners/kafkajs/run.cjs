const { Kafka, Partitioners, logLevel } = require('kafkajs')

const { KAFKA, TOPIC, GROUP, TASK, TOPICS, KEYS } = process.env
const kafka = new Kafka({ brokers: [KAFKA], logLevel: logLevel.NOTHING })

async function read(groupId, ended) {
  const consumer = kafka.consumer({ groupId })
  await consumer.connect()
  await consumer.subscribe({ topics: [TOPIC], fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ message }) => {
      console.log(message.value.toString())
      if (ended(message.offset)) process.exit()
    },
  })
}

async function bounded() {
  const admin = kafka.admin()
  await admin.connect()
  const [{ high }] = await admin.fetchTopicOffsets(TOPIC)
  await read(`bounded-${GROUP}`, (offset) => Number(offset) + 1 >= Number(high))
}

async function publish() {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner })
  await producer.connect()
  const keys = KEYS.split(',')
  for (const topic of TOPICS.split(',')) {
    for (const key of [...keys, ...keys, ...keys]) await producer.send({ topic, messages: [{ key, value: 'value' }] })
  }
  await producer.disconnect()
}

({ read: () => read(GROUP, () => false), bounded, publish })[TASK]()
