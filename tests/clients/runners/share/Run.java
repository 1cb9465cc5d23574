import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Run {
    static final Map<String, String> ENV = System.getenv();

    public static void main(String[] arguments) throws Exception {
        configure("share.auto.offset.reset", "earliest");
        if (!ENV.get("SETTING").isEmpty()) configure("share.isolation.level", "read_committed");
        Map<String, Object> config = Map.of("bootstrap.servers", ENV.get("KAFKA"), "group.id", ENV.get("GROUP"));
        var consumer = new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(ENV.get("TOPIC")));
        while (true) {
            for (var record : consumer.poll(Duration.ofMillis(500))) System.out.println(record.value());
        }
    }

    static void configure(String name, String value) throws Exception {
        var group = new ConfigResource(ConfigResource.Type.GROUP, ENV.get("GROUP"));
        var set = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        try (var admin = Admin.create(Map.of("bootstrap.servers", ENV.get("KAFKA")))) {
            admin.incrementalAlterConfigs(Map.of(group, List.of(set))).all().get();
        }
    }
}
