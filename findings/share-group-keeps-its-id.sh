#!/usr/bin/env bash
# Expected: a group's id without members can be used by any consumer.
# Seen: an id that a share group (KIP-932) used once stays one after its last consumer has left. The brokers refuse a consumer as if
#   members with other protocols were there; only the list of groups tells the type.
# Versions: kafka-clients 4.4.0, broker 4.4.0, 2026-11-28
# So: a member asks for the type of its group at its start (knowledgepulse_kafka/group_type.py).
set -euo pipefail
source "$(dirname "$0")/support/broker.sh"
transactions results

cat >Group.java <<'JAVA'
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.errors.InconsistentGroupProtocolException;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Group {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", arguments[0], "group.id", "once-shared");
        try (var admin = Admin.create(config)) {
            try (var shared = new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
                shared.subscribe(List.of("results"));
                while (admin.listGroups().all().get().isEmpty()) shared.poll(Duration.ofMillis(500));
            }
            for (var group : admin.listGroups().all().get()) {
                System.out.println(group.groupId() + ": " + group.type().get() + ", " + group.groupState().get());
            }
        }
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("results"));
            for (int i = 0; i < 20; i++) consumer.poll(Duration.ofMillis(500));
            System.out.println("a consumer joins");
        } catch (InconsistentGroupProtocolException refused) {
            System.out.println("a consumer: " + refused.getMessage());
        }
    }
}
JAVA
timeout 120 java -cp 'kafka/*' Group.java "$bootstrap" 2>/dev/null | tee output
diff - output <<'SEEN'
once-shared: Share, Empty
a consumer: The group member's supported protocols are incompatible with those of existing members or first group member tried to join with empty protocol type or empty protocol list.
SEEN
