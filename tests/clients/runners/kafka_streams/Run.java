import java.nio.file.Files;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.Consumed;

public class Run {
    public static void main(String[] arguments) throws Exception {
        var env = System.getenv();
        var config = new Properties();
        config.put("bootstrap.servers", env.get("KAFKA"));
        config.put("application.id", env.get("GROUP"));
        config.put("auto.offset.reset", "earliest");
        config.put("state.dir", Files.createTempDirectory("streams").toString());
        if (!env.get("SETTING").isEmpty()) config.put("processing.guarantee", "exactly_once_v2");
        var builder = new StreamsBuilder();
        builder.stream(env.get("TOPIC"), Consumed.with(Serdes.String(), Serdes.String()))
            .foreach((key, value) -> System.out.println(value));
        new KafkaStreams(builder.build(), config).start();
    }
}
