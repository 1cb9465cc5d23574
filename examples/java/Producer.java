import java.time.Instant;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Publishes the trace of one run: Producer [SERVERS [TOPIC]]. */
class Producer {
    private static final String TRACE = """
        {
          "@context": "https://openknowledgepulse.org/schema/v1",
          "@type": "ReasoningTrace",
          "id": "%s",
          "metadata": {
            "created_at": "%s",
            "task_domain": "code",
            "success": true,
            "visibility": "private",
            "privacy_level": "private",
            "agent_id": "builder-java"
          },
          "task": {"objective": "Fix the failing build"},
          "steps": [
            {"step_id": 0, "type": "thought", "content": "The lock file is stale."},
            {"step_id": 1, "type": "tool_call", "tool": {"name": "shell"}, "input": {"command": "npm install"}},
            {"step_id": 2, "type": "observation", "tool": {"name": "shell"}, "content": "added 214 packages"}
          ],
          "outcome": {"result_summary": "The build is green.", "confidence": 0.5}
        }
        """;

    public static void main(String[] arguments) throws Exception {
        String servers = arguments.length > 0 ? arguments[0] : "localhost:9092";
        String topic = arguments.length > 1 ? arguments[1] : "raw-traces";
        String id = "kp:trace:" + UUID.randomUUID();
        Map<String, Object> settings = Map.of("bootstrap.servers", servers);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, "builder-java", TRACE.formatted(id, Instant.now()))).get();
        }
        System.out.println(id);
    }
}
