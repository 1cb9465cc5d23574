import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.json.JsonConverter;

/** Writes a text as Kafka Connect's JsonConverter does, or reads one: wrap|unwrap, and schemas.enable. */
class Converters {
    public static void main(String[] arguments) throws Exception {
        var converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", arguments[1]), false);
        byte[] input = System.in.readAllBytes();
        if (arguments[0].equals("wrap")) {
            var text = new String(input, StandardCharsets.UTF_8);
            byte[] value = converter.fromConnectData("topic", Schema.STRING_SCHEMA, text);
            System.out.print("{\"value\": \"" + HexFormat.of().formatHex(value) + "\", \"headers\": {}}");
        } else {
            var text = (String) converter.toConnectData("topic", input).value();
            System.out.write(text.getBytes(StandardCharsets.UTF_8));
        }
        System.out.flush();
    }
}
