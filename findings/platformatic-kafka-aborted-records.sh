#!/usr/bin/env bash
# Expected: a consumer that reads committed records delivers none of an aborted transaction, as @platformatic/kafka does by default.
# Seen: of the aborted transactions in a fetch, it knows one for each producer, the last. Records of the others are delivered.
# Versions: @platformatic/kafka 2.12.1, kafka-clients and broker 4.4.0, 2026-11-28
# So: docs/consumers/consume.md shows aborted records in its row: a worker is one producer, and may abort more than once.
set -euo pipefail
source "$(dirname "$0")/support/broker.sh"
quietly npm install --no-audit --no-fund @platformatic/kafka@2.12.1 node@24.21.0

cat >Write.java <<'JAVA'
import java.util.Map;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes transactions of one producer: an aborted one, a committed one, and an aborted one again. */
public class Write {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", arguments[0], "transactional.id", "another");
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (String value : new String[] {"aborted, first", "committed", "aborted, last"}) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(arguments[1], 0, "key", value)).get();
                if (value.equals("committed")) producer.commitTransaction();
                else producer.abortTransaction();
            }
        }
    }
}
JAVA
cat >read.mjs <<'JS'
import { Consumer, stringDeserializers } from '@platformatic/kafka'

const [bootstrap, topic] = process.argv.slice(2)
const consumer = new Consumer({
  clientId: 'reader', groupId: topic, bootstrapBrokers: [bootstrap], deserializers: stringDeserializers, retries: 60,
})
const stream = await consumer.consume({ topics: [topic], mode: 'earliest' })
let end
for await (const { offset, value } of stream) {
  console.log(`${topic}: ${offset} ${value}`)
  clearTimeout(end)
  end = setTimeout(() => process.exit(), 10_000)
}
JS
# The first of the transactions of `transactions` is committed, the second aborted; the others follow them.
for topic in once again; do transactions "$topic"; done
quietly java -cp 'kafka/*' Write.java "$bootstrap" again
for topic in once again; do node_modules/.bin/node read.mjs "$bootstrap" "$topic"; done | tee output
diff - output <<'SEEN'
once: 0 committed
once: 1 committed
once: 2 committed
again: 0 committed
again: 1 committed
again: 2 committed
again: 7 aborted, first
again: 9 committed
SEEN
