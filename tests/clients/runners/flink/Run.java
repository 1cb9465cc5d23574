import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class Run {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> env = System.getenv();
        var environment = StreamExecutionEnvironment.getExecutionEnvironment().setParallelism(1);
        environment.enableCheckpointing(2000); // with it, the source commits the group's positions
        var source = KafkaSource.<String>builder()
            .setBootstrapServers(env.get("KAFKA")).setTopics(env.get("TOPIC")).setGroupId(env.get("GROUP"))
            .setStartingOffsets(OffsetsInitializer.earliest()).setValueOnlyDeserializer(new SimpleStringSchema());
        if (env.get("TASK").equals("bounded")) source.setBounded(OffsetsInitializer.latest()).setGroupId("bounded-" + env.get("GROUP"));
        if (!env.get("SETTING").isEmpty()) source.setProperty("isolation.level", "read_committed");
        environment.fromSource(source.build(), WatermarkStrategy.noWatermarks(), "kafka").print();
        environment.execute();
    }
}
