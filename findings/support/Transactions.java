import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes one committed transaction of three records to a new topic, then an aborted one of two. */
public class Transactions {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], topic = arguments[1];
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        }
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "transactional.id", "writer");
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            write(producer, topic, "committed", 3);
            producer.commitTransaction();
            write(producer, topic, "aborted", 2);
            producer.abortTransaction();
        }
    }

    private static void write(KafkaProducer<String, String> producer, String topic, String value, int number)
            throws Exception {
        producer.beginTransaction();
        for (int i = 0; i < number; i++) {
            producer.send(new ProducerRecord<>(topic, 0, "key", value)).get();
        }
    }
}
