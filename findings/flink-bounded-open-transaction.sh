#!/usr/bin/env bash
# Expected: a bounded read of committed records ends at the last stable offset, as Java's consumer does with endOffsets.
# Seen: KafkaSource.setBounded(OffsetsInitializer.latest()) asks for the end of uncommitted records, whatever isolation.level is,
#   and then waits there as long as a transaction is open.
# Versions: flink-connector-kafka 5.0.0-2.2, flink 2.2.0, kafka-clients and broker 4.4.0, 2026-11-28
# So: docs/consumers/consume.md says that such a read of our outputs waits for open transactions.
set -euo pipefail
source "$(dirname "$0")/support/broker.sh"
transactions results
for artifact in flink-connector-kafka:5.0.0-2.2 flink-connector-base:2.2.0 flink-streaming-java:2.2.0 flink-clients:2.2.0; do
    jars "org.apache.flink:$artifact" flink
done

cat >Open.java <<'JAVA'
import java.nio.file.*;
import java.util.Map;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.StringSerializer;

/** Keeps a transaction open until there is a file `abort`. */
public class Open {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> config =
            Map.of("bootstrap.servers", arguments[0], "transactional.id", "open", "transaction.timeout.ms", 600_000);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("results", 0, "key", "open")).get();
            Files.createFile(Path.of("opened"));
            while (!Files.exists(Path.of("abort"))) Thread.sleep(200);
            producer.abortTransaction();
        }
    }
}
JAVA
cat >Bounded.java <<'JAVA'
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Bounded {
    public static void main(String[] arguments) {
        var partitions = List.of(new TopicPartition("results", 0));
        Map<String, Object> config = Map.of(
            "bootstrap.servers", arguments[0], "isolation.level", "read_committed", "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(partitions);
            long end = consumer.endOffsets(partitions).get(partitions.get(0));
            while (consumer.position(partitions.get(0)) < end) {
                for (var record : consumer.poll(Duration.ofMillis(300))) System.out.println(record.value());
            }
        }
    }
}
JAVA
cat >Flink.java <<'JAVA'
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class Flink {
    public static void main(String[] arguments) throws Exception {
        var source = KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0]).setTopics("results").setGroupId("flink")
            .setProperty("isolation.level", "read_committed")
            .setStartingOffsets(OffsetsInitializer.earliest()).setBounded(OffsetsInitializer.latest())
            .setValueOnlyDeserializer(new SimpleStringSchema()).build();
        var environment = StreamExecutionEnvironment.getExecutionEnvironment().setParallelism(1);
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "results").print();
        environment.execute();
    }
}
JAVA
java -cp 'kafka/*' Open.java "$bootstrap" >open.log 2>&1 &
quietly timeout 120 bash -c 'until [ -e opened ]; do sleep 0.2; done'
{
    java -cp 'kafka/*' Bounded.java "$bootstrap" 2>/dev/null
    echo "Java's consumer has ended"
    java -cp 'flink/*' Flink.java "$bootstrap" >flink.log 2>/dev/null &
    flink=$!
    timeout 300 bash -c 'until [ "$(wc -l <flink.log)" -ge 3 ]; do sleep 1; done'
    cat flink.log
    # Long enough for it to end, after it has read.
    timeout 60 tail --pid "$flink" -f /dev/null || echo "Flink waits"
    touch abort
    wait "$flink"
    echo "Flink has ended after the transaction"
} | tee output
diff - output <<'SEEN'
committed
committed
committed
Java's consumer has ended
committed
committed
committed
Flink waits
Flink has ended after the transaction
SEEN
