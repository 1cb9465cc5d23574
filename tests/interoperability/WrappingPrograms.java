import com.fasterxml.jackson.annotation.JsonAnyGetter;
import com.fasterxml.jackson.annotation.JsonAnySetter;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaDeserializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaSerializer;
import io.cloudevents.core.builder.CloudEventBuilder;
import io.cloudevents.core.message.Encoding;
import io.cloudevents.jackson.JsonFormat;
import io.cloudevents.kafka.CloudEventDeserializer;
import io.cloudevents.kafka.CloudEventSerializer;
import io.debezium.data.Envelope;
import io.debezium.transforms.outbox.EventRouter;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.springframework.kafka.support.serializer.JacksonJsonDeserializer;
import org.springframework.kafka.support.serializer.JacksonJsonSerializer;

/**
 * Writes a trace as a company's program does, or reads an output as its consumer does.
 *
 * <p>PROGRAM wrap|unwrap TOPIC HEADERS REGISTRY SCHEMA; the trace, or the output's value, is read from standard input.
 */
class WrappingPrograms {
    static final ObjectMapper JSON = new ObjectMapper();
    static final int REFUSED = 3;
    static final Map<String, Object> CONSUMED = Map.of("spring.json.use.type.headers", false, "spring.json.value.default.type", Consumed.class);

    /** A document as the producer's class. */
    public static class Produced {
        private final Map<String, Object> members = new LinkedHashMap<>();

        @JsonAnyGetter
        public Map<String, Object> members() {
            return members;
        }

        @JsonAnySetter
        public void set(String name, Object member) {
            members.put(name, member);
        }
    }

    /** The same as a class of the consumer. */
    public static class Consumed extends Produced {}

    public static void main(String[] arguments) throws Exception {
        String program = arguments[0], topic = arguments[2];
        byte[] given = System.in.readAllBytes();
        Headers headers = new RecordHeaders();
        JSON.readTree(arguments[3]).properties().forEach(each -> headers.add(each.getKey(), each.getValue().asText().getBytes(StandardCharsets.ISO_8859_1)));
        if (arguments[1].equals("wrap")) {
            if (program.startsWith("apicurio")) register(arguments[4], topic, Path.of(arguments[5]));
            byte[] value = wrapped(program, topic, headers, arguments[4], given);
            Map<String, String> texts = new LinkedHashMap<>();
            headers.forEach(each -> texts.put(each.key(), new String(each.value(), StandardCharsets.ISO_8859_1)));
            JSON.writeValue(System.out, Map.of("value", HexFormat.of().formatHex(value), "headers", texts));
        } else {
            try {
                System.out.write(unwrapped(program, topic, headers, arguments[4], given));
            } catch (IllegalArgumentException refusal) {
                System.err.println(refusal.getMessage());
                System.exit(REFUSED);
            }
        }
        System.out.flush();
        System.exit(0); // the programs leave threads behind
    }

    static byte[] wrapped(String program, String topic, Headers headers, String registry, byte[] trace) throws Exception {
        String text = new String(trace, StandardCharsets.UTF_8);
        switch (program) {
            case "apicurio":
            case "apicurio-headers":
                try (var serializer = new JsonSchemaKafkaSerializer<JsonNode>()) {
                    serializer.configure(apicurio(program, registry), false);
                    return serializer.serialize(topic, headers, JSON.readTree(trace));
                }
            case "cloudevents":
                var event = CloudEventBuilder.v1().withId("e-1").withSource(URI.create("/agents/builder-7"));
                try (var serializer = new CloudEventSerializer()) {
                    String format = JsonFormat.CONTENT_TYPE;
                    serializer.configure(Map.of("cloudevents.serializer.encoding", Encoding.STRUCTURED, "cloudevents.serializer.event_format", format), false);
                    return serializer.serialize(topic, headers, event.withType("org.example.trace").withData("application/json", trace).build());
                }
            case "spring":
            case "spring-types":
            case "spring-text":
                try (var serializer = new JacksonJsonSerializer<Object>()) {
                    serializer.configure(Map.of(), false);
                    return serializer.serialize(topic, headers, program.equals("spring-text") ? text : JSON.readValue(trace, Produced.class));
                }
            case "debezium":
                SourceRecord routed = outbox(text);
                return converter(true).fromConnectData(topic, routed.valueSchema(), routed.value());
            case "connect-struct":
                Schema schema = schemaOf(JSON.readTree(trace));
                return converter(true).fromConnectData(topic, schema, dataOf(schema, JSON.readTree(trace)));
            default:
                return converter(program.equals("connect-schemas")).fromConnectData(topic, Schema.STRING_SCHEMA, text);
        }
    }

    static byte[] unwrapped(String program, String topic, Headers headers, String registry, byte[] value) throws Exception {
        switch (program) {
            case "apicurio":
            case "apicurio-headers":
                try (var deserializer = new JsonSchemaKafkaDeserializer<JsonNode>()) {
                    deserializer.configure(apicurio(program, registry), false);
                    return JSON.writeValueAsBytes(deserializer.deserialize(topic, headers, value));
                }
            case "cloudevents":
                try (var deserializer = new CloudEventDeserializer()) {
                    return deserializer.deserialize(topic, headers, value).getData().toBytes();
                }
            case "spring":
            case "spring-types":
            case "spring-text":
                try (var deserializer = new JacksonJsonDeserializer<Object>()) {
                    deserializer.configure(program.equals("spring") ? CONSUMED : Map.of(), false);
                    Object read = deserializer.deserialize(topic, headers, value);
                    return read instanceof String text ? bytes(text) : JSON.writeValueAsBytes(read);
                }
            case "connect-struct":
                Object read = converter(JSON.readTree(value).has("payload")).toConnectData(topic, value).value();
                return converter(false).fromConnectData(topic, read instanceof Struct struct ? struct.schema() : null, read);
            default:
                boolean hasSchemas = !program.equals("connect-text");
                return bytes((String) converter(hasSchemas).toConnectData(topic, value).value());
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static JsonConverter converter(boolean hasSchemas) {
        var converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", hasSchemas), false);
        return converter;
    }

    static Map<String, Object> apicurio(String program, String registry) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("apicurio.registry.url", registry);
        settings.put("apicurio.registry.find-latest", true);
        settings.put("apicurio.registry.headers.enabled", program.equals("apicurio-headers"));
        settings.put("apicurio.registry.deserializer.value.return-class", JsonNode.class.getName());
        settings.put("apicurio.registry.serde.validation-enabled", false);
        return settings;
    }

    /** Registers the schema of a topic's values under the name that the serializer looks up. */
    static void register(String registry, String topic, Path schema) throws Exception {
        var content = Map.of("content", Files.readString(schema), "contentType", "application/json");
        var artifact = Map.of("artifactId", topic + "-value", "artifactType", "JSON", "firstVersion", Map.of("content", content));
        var address = URI.create(registry + "/groups/default/artifacts?ifExists=FIND_OR_CREATE_VERSION");
        var request = HttpRequest.newBuilder(address).header("Content-Type", "application/json");
        var answer = HttpClient.newHttpClient().send(request.POST(HttpRequest.BodyPublishers.ofByteArray(JSON.writeValueAsBytes(artifact))).build(), HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) throw new IllegalStateException(answer.body());
    }

    /** Returns the event of a new row in an outbox, as its router publishes it by default. */
    static SourceRecord outbox(String text) {
        Schema row = SchemaBuilder.struct().name("outbox.Value").field("id", Schema.STRING_SCHEMA).field("aggregatetype", Schema.STRING_SCHEMA)
            .field("aggregateid", Schema.STRING_SCHEMA).field("type", Schema.STRING_SCHEMA).field("payload", Schema.STRING_SCHEMA).build();
        Schema source = SchemaBuilder.struct().name("source").field("table", Schema.STRING_SCHEMA).build();
        var envelope = Envelope.defineSchema().withName("outbox.Envelope").withRecord(row).withSource(source).build();
        var after = new Struct(row).put("id", "1").put("aggregatetype", "trace").put("aggregateid", "builder-7").put("type", "made").put("payload", text);
        var event = envelope.create(after, new Struct(source).put("table", "outbox"), Instant.now());
        var router = new EventRouter<SourceRecord>();
        router.configure(Map.of());
        return router.apply(new SourceRecord(Map.of(), Map.of(), "db.outbox", envelope.schema(), event));
    }

    /** Returns a schema of Connect for a document, whose members are all optional. */
    static Schema schemaOf(JsonNode... nodes) {
        JsonNode first = nodes[0];
        if (first.isTextual()) return Schema.OPTIONAL_STRING_SCHEMA;
        if (first.isBoolean()) return Schema.OPTIONAL_BOOLEAN_SCHEMA;
        if (first.isIntegralNumber()) return Schema.OPTIONAL_INT64_SCHEMA;
        if (first.isNumber()) return Schema.OPTIONAL_FLOAT64_SCHEMA;
        if (first.isArray()) {
            List<JsonNode> items = new ArrayList<>();
            for (JsonNode node : nodes) node.forEach(items::add);
            return SchemaBuilder.array(items.isEmpty() ? Schema.OPTIONAL_STRING_SCHEMA : schemaOf(items.toArray(JsonNode[]::new))).optional().build();
        }
        Map<String, List<JsonNode>> members = new LinkedHashMap<>();
        for (JsonNode node : nodes) node.properties().forEach(each -> members.computeIfAbsent(each.getKey(), name -> new ArrayList<>()).add(each.getValue()));
        var struct = SchemaBuilder.struct().optional();
        members.forEach((name, values) -> struct.field(name, schemaOf(values.toArray(JsonNode[]::new))));
        return struct.build();
    }

    static Object dataOf(Schema schema, JsonNode node) {
        if (node == null) return null;
        return switch (schema.type()) {
            case STRING -> node.asText();
            case BOOLEAN -> node.asBoolean();
            case INT64 -> node.asLong();
            case FLOAT64 -> node.asDouble();
            case ARRAY -> {
                List<Object> items = new ArrayList<>();
                node.forEach(item -> items.add(dataOf(schema.valueSchema(), item)));
                yield items;
            }
            default -> {
                var struct = new Struct(schema);
                schema.fields().forEach(field -> struct.put(field, dataOf(field.schema(), node.get(field.name()))));
                yield struct;
            }
        };
    }
}
