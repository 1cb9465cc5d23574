import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.connect.storage.HeaderConverter;

/** Prints what headers become when a converter of Kafka Connect has read and written them: CLASS VALUE… */
public class Headers {
    public static void main(String[] arguments) throws Exception {
        HeaderConverter converter = (HeaderConverter) Class.forName(arguments[0]).getDeclaredConstructor().newInstance();
        converter.configure(Map.of("converter.type", "header"));
        for (int number = 1; number < arguments.length; number++) {
            byte[] value = arguments[number].getBytes(StandardCharsets.UTF_8);
            var read = converter.toConnectHeader("topic", "kp-score", value);
            System.out.write(converter.fromConnectHeader("topic", "kp-score", read.schema(), read.value()));
            System.out.write('\n');
        }
        System.out.flush();
    }
}
