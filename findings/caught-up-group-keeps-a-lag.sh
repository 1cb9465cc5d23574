#!/usr/bin/env bash
# Expected: a group that has read every committed record of a topic has a lag of 0.
# Seen: Java's client, librdkafka and aiokafka commit the offset behind what they passed over. franz-go, Sarama and KafkaJS commit
#   the offset behind the last record that they delivered: markers and aborted records behind it stay as a lag.
# Versions: franz-go v1.22.3, sarama v1.61.1, kafkajs 2.2.4, aiokafka 0.14.0, confluent-kafka 2.16.1, kafka-clients and broker 4.4.0, 2026-11-28
# So: docs/consumers/consume.md says that such a lag is none.
set -euo pipefail
source "$(dirname "$0")/support/broker.sh"
transactions results
packages aiokafka==0.14.0 confluent-kafka==2.16.1
quietly npm install --no-audit --no-fund kafkajs@2.2.4

# Each program reads for ten seconds, longer than its client's interval between commits.
cat >Read.java <<'JAVA'
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Read {
    public static void main(String[] arguments) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", arguments[0], "group.id", "java", "isolation.level", "read_committed",
            "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("results"));
            for (long end = System.currentTimeMillis() + 10_000; System.currentTimeMillis() < end; ) {
                consumer.poll(Duration.ofMillis(300));
            }
        }
    }
}
JAVA
cat >Lag.java <<'JAVA'
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.TopicPartition;

public class Lag {
    public static void main(String[] arguments) throws Exception {
        var partition = new TopicPartition("results", 0);
        try (var admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            long end = admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition).get().offset();
            for (String group : List.of("java", "librdkafka", "aiokafka", "kafkajs", "franz-go", "sarama")) {
                var committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(partition);
                System.out.println(group + ": lag " + (committed == null ? "unknown" : end - committed.offset()));
            }
        }
    }
}
JAVA
cat >read.py <<'PY'
import asyncio
import sys
import time

from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer

bootstrap = sys.argv[1]


async def read() -> None:
    async with AIOKafkaConsumer(
        "results",
        bootstrap_servers=bootstrap,
        group_id="aiokafka",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            await consumer.getmany(timeout_ms=500)


asyncio.run(read())
consumer = Consumer({
    "bootstrap.servers": bootstrap,
    "group.id": "librdkafka",
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
})
consumer.subscribe(["results"])
end = time.monotonic() + 10
while time.monotonic() < end:
    consumer.poll(0.3)
consumer.close()
PY
cat >read.js <<'JS'
const { Kafka, logLevel } = require('kafkajs')

async function main() {
  const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.NOTHING })
  const consumer = kafka.consumer({ groupId: 'kafkajs' })
  await consumer.connect()
  await consumer.subscribe({ topics: ['results'], fromBeginning: true })
  await consumer.run({ autoCommitInterval: 1000, eachMessage: async () => {} })
  await new Promise((resolve) => setTimeout(resolve, 10_000))
  await consumer.disconnect()
}

main()
JS
cat >main.go <<'GO'
package main

import (
	"context"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	brokers := []string{os.Args[1]}
	franz(brokers)
	group(brokers)
}

func franz(brokers []string) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.ConsumeTopics("results"), kgo.ConsumerGroup("franz-go"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	deadline, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for deadline.Err() == nil {
		client.PollFetches(deadline)
	}
}

func group(brokers []string) {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	members, err := sarama.NewConsumerGroup(brokers, "sarama", config)
	if err != nil {
		panic(err)
	}
	defer members.Close()
	deadline, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	members.Consume(deadline, []string{"results"}, handler{})
}

type handler struct{}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
	}
	return nil
}
GO
quietly go mod init finding
quietly go get github.com/twmb/franz-go@v1.22.3 github.com/IBM/sarama@v1.61.1
quietly go mod tidy
quietly go build -o reader .

java -cp 'kafka/*' Read.java "$bootstrap" 2>/dev/null
venv/bin/python read.py "$bootstrap"
node read.js "$bootstrap"
./reader "$bootstrap"
java -cp 'kafka/*' Lag.java "$bootstrap" 2>/dev/null | tee output
diff - output <<'SEEN'
java: lag 0
librdkafka: lag 0
aiokafka: lag 0
kafkajs: lag 4
franz-go: lag 4
sarama: lag 4
SEEN
