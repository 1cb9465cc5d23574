#!/usr/bin/env bash
# Expected: a share consumer (KIP-932) reads committed records if isolation.level=read_committed is set, as other consumers do.
# Seen: the client refuses the setting, and reads uncommitted records unless the group's own configuration on the brokers,
#   share.isolation.level, says otherwise.
# Versions: kafka-clients 4.4.0, broker 4.4.0, 2026-11-28
# So: docs/consumers/consume.md names the group's configuration; no setting of a consumer can help.
set -euo pipefail
source "$(dirname "$0")/support/broker.sh"
transactions results

cat >Share.java <<'JAVA'
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.*;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Share {
    static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        read("the client's level", Map.of(), Map.of("isolation.level", "read_committed"));
        read("defaults", Map.of(), Map.of());
        read("the group's level", Map.of("share.isolation.level", "read_committed"), Map.of());
    }

    static void read(String group, Map<String, String> ofGroup, Map<String, Object> ofClient) throws Exception {
        configure(group, "share.auto.offset.reset", "earliest");
        for (var setting : ofGroup.entrySet()) configure(group, setting.getKey(), setting.getValue());
        var config = new HashMap<String, Object>(ofClient);
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        try (var consumer = new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            System.out.println(group + ": " + count(consumer));
        } catch (ConfigException refused) {
            System.out.println(group + ": " + refused.getMessage());
        }
    }

    static void configure(String group, String key, String value) throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        var set = new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET);
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
        }
    }

    /** Count the values up to three seconds after the last record. */
    static Map<String, Integer> count(KafkaShareConsumer<String, String> consumer) {
        consumer.subscribe(List.of("results"));
        var read = new TreeMap<String, Integer>();
        long end = System.currentTimeMillis() + 60_000;
        while (System.currentTimeMillis() < end) {
            for (var record : consumer.poll(Duration.ofMillis(300))) {
                read.merge(record.value(), 1, Integer::sum);
                end = System.currentTimeMillis() + 3_000;
            }
        }
        return read;
    }
}
JAVA
java -cp 'kafka/*' Share.java "$bootstrap" 2>/dev/null | tee output
diff - output <<'SEEN'
the client's level: isolation.level cannot be set when using a share group.
defaults: {aborted=2, committed=3}
the group's level: {committed=3}
SEEN
