// Publish the trace of one run: npm run producer [SERVERS [TOPIC]]

import { randomUUID } from "node:crypto";
import { Kafka, Partitioners, logLevel } from "kafkajs";

const [servers = "localhost:9092", topic = "raw-traces"] = process.argv.slice(2);

const trace = {
  "@context": "https://openknowledgepulse.org/schema/v1",
  "@type": "ReasoningTrace",
  id: `kp:trace:${randomUUID()}`,
  metadata: {
    created_at: new Date().toISOString(),
    task_domain: "code",
    success: true,
    visibility: "private",
    privacy_level: "private",
    agent_id: "builder-typescript",
  },
  task: { objective: "Fix the failing build" },
  steps: [
    { step_id: 0, type: "thought", content: "The lock file is stale." },
    { step_id: 1, type: "tool_call", tool: { name: "shell" }, input: { command: "npm install" } },
    { step_id: 2, type: "observation", tool: { name: "shell" }, content: "added 214 packages" },
  ],
  outcome: { result_summary: "The build is green.", confidence: 0.5 },
};

const kafka = new Kafka({ brokers: servers.split(","), logLevel: logLevel.ERROR });
// The default partitioner hashes keys like the Java client.
const producer = kafka.producer({ idempotent: true, createPartitioner: Partitioners.DefaultPartitioner });
await producer.connect();
await producer.send({ topic, messages: [{ key: trace.metadata.agent_id, value: JSON.stringify(trace) }] });
await producer.disconnect();
console.log(trace.id);
