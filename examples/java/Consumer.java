import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Prints each scored trace: Consumer [SERVERS [TOPIC...]]. It runs until Ctrl-C. */
class Consumer {
    public static void main(String[] arguments) {
        String servers = arguments.length > 0 ? arguments[0] : "localhost:9092";
        List<String> topics = arguments.length > 1
            ? Arrays.asList(arguments).subList(1, arguments.length)
            : List.of("contribute", "rejected");
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", servers,
            "group.id", "examples-java",
            "auto.offset.reset", "earliest",
            "isolation.level", "read_committed");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(topics);
            while (true) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    // JSON with `score`, `nearest` and more; a producer may have used the name, too.
                    String score = new String(record.headers().lastHeader("kp-score").value());
                    System.out.println(record.topic() + " " + record.key() + " " + score);
                }
            }
        }
    }
}
