import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.google.adk.agents.BaseAgent;
import com.google.adk.agents.LlmAgent;
import com.google.adk.agents.RunConfig;
import com.google.adk.runner.InMemoryRunner;
import com.google.adk.tools.AgentTool;
import com.google.adk.tools.Annotations.Schema;
import com.google.adk.tools.FunctionTool;
import com.google.genai.types.Content;
import com.google.genai.types.Part;
import io.opentelemetry.exporter.otlp.http.trace.OtlpHttpSpanExporter;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.export.BatchSpanProcessor;
import java.util.Map;

/** An agent of ADK with a tool, with an agent as a tool, or with an agent that takes over. */
public class Bakery {

    static JsonNode script;

    public static void main(String[] arguments) throws Exception {
        script = new ObjectMapper().readTree(System.getenv("PRODUCER_SCRIPT"));
        var exporter = OtlpHttpSpanExporter.builder().setEndpoint(System.getenv("OTEL_EXPORTER_OTLP_ENDPOINT") + "/v1/traces").build();
        var provider = SdkTracerProvider.builder().addSpanProcessor(BatchSpanProcessor.builder(exporter).build()).build();
        OpenTelemetrySdk.builder().setTracerProvider(provider).buildAndRegisterGlobal();

        LlmAgent baker = agent("baker").tools(FunctionTool.create(Bakery.class, "weigh")).build();
        BaseAgent asked = switch (script.get("run").asText()) {
            case "sub_agent" -> agent("seller").tools(AgentTool.create(baker)).build();
            case "handoff" -> agent("seller").subAgents(baker).build();
            default -> baker;
        };
        var runner = new InMemoryRunner(asked, "bakery");
        var session = runner.sessionService().createSession("bakery", "somebody").blockingGet();
        var config = RunConfig.builder().setMaxLlmCalls(script.path("limit").asInt(100)).build();
        try {
            var content = Content.fromParts(Part.fromText(script.get("objective").asText()));
            runner.runAsync("somebody", session.id(), content, config).blockingSubscribe();
        } catch (RuntimeException error) {
            error.printStackTrace();
        }
        provider.close();
        System.exit(0);
    }

    static LlmAgent.Builder agent(String name) {
        return LlmAgent.builder().name(name).description("Weighs.").instruction("Answer by weighing.").model("gemini-2.5-flash");
    }

    /** Weighs a thing. */
    @Schema(name = "weigh", description = "Weighs a thing.")
    public static Map<String, Object> weigh(@Schema(name = "what") String what) {
        JsonNode result = ((ArrayNode) script.get("results").get(what)).remove(0);
        if (result.get("fails").asBoolean()) {
            throw new IllegalStateException(result.get("text").asText());
        }
        return Map.of("weight", result.get("text").asText());
    }
}
