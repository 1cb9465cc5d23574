import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

public class Run {
    static final Map<String, String> ENV = System.getenv();

    public static void main(String[] arguments) {
        switch (ENV.get("TASK")) {
            case "read" -> read();
            case "bounded" -> bounded();
            default -> publish();
        }
    }

    static KafkaConsumer<String, String> consumer() {
        var config = new HashMap<String, Object>(Map.of(
            "bootstrap.servers", ENV.get("KAFKA"), "group.id", ENV.get("GROUP"), "auto.offset.reset", "earliest"));
        if (!ENV.get("SETTING").isEmpty()) config.put("isolation.level", "read_committed");
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    static void print(KafkaConsumer<String, String> consumer) {
        for (var record : consumer.poll(Duration.ofMillis(500))) System.out.println(record.value());
    }

    static void read() {
        var consumer = consumer();
        consumer.subscribe(List.of(ENV.get("TOPIC")));
        while (true) print(consumer);
    }

    static void bounded() {
        var partition = new TopicPartition(ENV.get("TOPIC"), 0);
        var consumer = consumer();
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        long end = consumer.endOffsets(List.of(partition)).get(partition);
        while (consumer.position(partition) < end) print(consumer);
    }

    static void publish() {
        Map<String, Object> config = Map.of("bootstrap.servers", ENV.get("KAFKA"));
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (String topic : ENV.get("TOPICS").split(",")) {
                for (int round = 0; round < 3; round++) {
                    for (String key : ENV.get("KEYS").split(",")) producer.send(new ProducerRecord<>(topic, key, "value"));
                }
            }
        }
    }
}
