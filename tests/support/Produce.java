import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Publishes lines of "codec value" from standard input; arguments: bootstrap servers, topic. */
class Produce {
    public static void main(String[] arguments) throws Exception {
        Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split(" ", 2);
            producers
                .computeIfAbsent(parts[0], codec -> producer(arguments[0], codec))
                .send(new ProducerRecord<>(arguments[1], parts[1]));
        }
        producers.values().forEach(KafkaProducer::close);
    }

    private static KafkaProducer<String, String> producer(String servers, String codec) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", servers, "compression.type", codec, "linger.ms", 100, "batch.size", 1 << 20);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }
}
