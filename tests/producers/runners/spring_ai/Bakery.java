import java.util.Map;
import java.util.function.Function;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.tool.ToolCallback;
import org.springframework.ai.tool.function.FunctionToolCallback;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ArrayNode;

/** Spring AI's client with a tool, or with a tool that runs another. */
@SpringBootConfiguration(proxyBeanMethods = false)
@EnableAutoConfiguration
public class Bakery {

    record Thing(String what) {}

    record Request(String request) {}

    public static void main(String[] arguments) {
        JsonNode script = new JsonMapper().readTree(System.getenv("PRODUCER_SCRIPT"));
        SpringApplication application = new SpringApplication(Bakery.class);
        application.setDefaultProperties(Map.of(
            "spring.main.web-application-type", "none",
            "spring.ai.openai.api-key", "unused",
            "spring.ai.openai.base-url", System.getenv("OPENAI_BASE_URL"),
            "spring.ai.openai.chat.model", "scripted",
            "spring.ai.tools.observations.include-content", script.get("content").asBoolean(),
            "spring.ai.tools.limits.max-total-tool-calls", script.path("limit").asInt(100),
            "management.tracing.sampling.probability", 1,
            "management.opentelemetry.tracing.export.otlp.endpoint",
            System.getenv("OTEL_EXPORTER_OTLP_ENDPOINT") + "/v1/traces",
            "management.otlp.metrics.export.enabled", false));
        try (var context = application.run(arguments)) {
            ToolCallback weigh = tool("weigh", Thing.class, thing -> weigh(script, thing));
            Function<String, ChatClient.ChatClientRequestSpec> asked = text ->
                context.getBean(ChatClient.Builder.class).clone().build().prompt().system("Answer by weighing.").user(text);
            ToolCallback baker = tool("ask_baker", Request.class,
                request -> asked.apply(request.request()).tools(weigh).call().content());
            boolean isAsked = script.get("run").asString().equals("sub_agent");
            var request = asked.apply(script.get("objective").asString()).tools(isAsked ? baker : weigh);
            if (script.path("stream").asBoolean()) {
                request.stream().content().blockLast();
            } else {
                request.call().content();
            }
        }
    }

    private static <T> ToolCallback tool(String name, Class<T> input, Function<T, String> run) {
        return FunctionToolCallback.builder(name, run).description("Weighs or asks.").inputType(input).build();
    }

    private static String weigh(JsonNode script, Thing thing) {
        JsonNode result = ((ArrayNode) script.get("results").get(thing.what())).remove(0);
        if (result.get("fails").asBoolean()) {
            throw new IllegalStateException(result.get("text").asString());
        }
        return result.get("text").asString();
    }
}
