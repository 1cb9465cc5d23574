// Print each scored trace: npm run consumer [SERVERS [TOPIC...]]. It runs until Ctrl-C.

import { Kafka, logLevel } from "kafkajs";

const [servers = "localhost:9092", ...named] = process.argv.slice(2);
const topics = named.length ? named : ["contribute", "rejected"];

const kafka = new Kafka({ brokers: servers.split(","), logLevel: logLevel.ERROR });
// It reads committed records, unless `readUncommitted` is set.
const consumer = kafka.consumer({ groupId: "examples-typescript" });
await consumer.connect();
await consumer.subscribe({ topics, fromBeginning: true });
await consumer.run({
  eachMessage: async ({ message }) => {
    const trace = JSON.parse(String(message.value));
    // A producer may have used the name too; the worker's header is the last one.
    const score = JSON.parse(String([message.headers?.["kp-score"]].flat().at(-1)));
    console.log(trace.id, score.score, score.nearest);
  },
});
process.once("SIGINT", () => void consumer.disconnect());
