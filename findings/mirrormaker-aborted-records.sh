#!/usr/bin/env bash
# Expected: on MirrorMaker 2's copy of a topic, a consumer of committed records sees what it sees on the original.
# Seen: by default it copies aborted records, too, and without transactions, so that nothing can filter them there.
#   SOURCE->TARGET.consumer.isolation.level=read_committed before the first run avoids it.
# Versions: connect-mirror 4.3.1, broker 4.4.0, 2026-11-28
# So: docs/consumers/consume.md names the setting for who mirrors the outputs.
set -euo pipefail
source "$(dirname "$0")/support/broker.sh"
transactions results
jars org.apache.kafka:connect-mirror:4.3.1 mirror

cat >Read.java <<'JAVA'
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Counts a topic's values as a consumer of committed records, up to ten seconds after the last one. */
public class Read {
    public static void main(String[] arguments) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", arguments[0], "group.id", arguments[1], "isolation.level", "read_committed",
            "auto.offset.reset", "earliest", "allow.auto.create.topics", "false", "metadata.max.age.ms", "1000");
        var read = new TreeMap<String, Integer>();
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[1]));
            long end = System.currentTimeMillis() + 180_000;
            while (System.currentTimeMillis() < end) {
                for (var record : consumer.poll(Duration.ofMillis(300))) {
                    read.merge(record.value(), 1, Integer::sum);
                    end = System.currentTimeMillis() + 10_000;
                }
            }
        }
        System.out.println(arguments[1] + ": " + read);
    }
}
JAVA

cat >mirror.properties <<END
clusters=plain,filtered,target
plain.bootstrap.servers=$bootstrap
filtered.bootstrap.servers=$bootstrap
target.bootstrap.servers=$bootstrap
plain->target.enabled=true
plain->target.topics=results
filtered->target.enabled=true
filtered->target.topics=results
filtered->target.consumer.isolation.level=read_committed
emit.heartbeats.enabled=false
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
END
java -Xmx512m -cp 'mirror/*' org.apache.kafka.connect.mirror.MirrorMaker mirror.properties >mirror.log 2>&1 &
mirror=$!
trap 'kill "$mirror"; cleanup' EXIT
for topic in results plain.results filtered.results; do
    java -cp 'kafka/*' Read.java "$bootstrap" "$topic" 2>/dev/null
done | tee output
diff - output <<'SEEN'
results: {committed=3}
plain.results: {aborted=2, committed=3}
filtered.results: {committed=3}
SEEN
