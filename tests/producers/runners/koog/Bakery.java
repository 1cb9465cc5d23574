import ai.koog.agents.core.agent.AIAgent;
import ai.koog.agents.core.tools.ToolRegistry;
import ai.koog.agents.core.tools.annotations.LLMDescription;
import ai.koog.agents.core.tools.annotations.Tool;
import ai.koog.agents.core.tools.reflect.ToolSet;
import ai.koog.agents.features.opentelemetry.feature.OpenTelemetry;
import ai.koog.prompt.executor.clients.ConnectionTimeoutConfig;
import ai.koog.prompt.executor.clients.openai.OpenAIClientSettings;
import ai.koog.prompt.executor.clients.openai.OpenAIModels;
import ai.koog.prompt.executor.model.PromptExecutor;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import io.opentelemetry.exporter.otlp.http.trace.OtlpHttpSpanExporter;
import io.opentelemetry.sdk.common.CompletableResultCode;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.opentelemetry.sdk.trace.export.SpanExporter;
import java.util.Collection;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** An agent of Koog with a tool, and its spans. */
public class Bakery {

    static JsonNode script;
    /** Whether the agent's own span is sent, which ends last: Koog sends spans some seconds later. */
    static final CountDownLatch sent = new CountDownLatch(1);

    public static void main(String[] arguments) throws Exception {
        script = new ObjectMapper().readTree(System.getenv("PRODUCER_SCRIPT"));
        try {
            agent().run(script.get("objective").asText());
        } catch (RuntimeException error) {
            error.printStackTrace();
        }
        sent.await(60, TimeUnit.SECONDS);
        System.exit(0);
    }

    record Exporter(SpanExporter exporter, CountDownLatch sent) implements SpanExporter {
        @Override
        public CompletableResultCode export(Collection<SpanData> spans) {
            var result = exporter.export(spans).join(10, TimeUnit.SECONDS);
            if (spans.stream().anyMatch(span -> !span.getParentSpanContext().isValid())) {
                sent.countDown();
            }
            return result;
        }

        @Override
        public CompletableResultCode flush() {
            return exporter.flush();
        }

        @Override
        public CompletableResultCode shutdown() {
            return exporter.shutdown();
        }
    }

    static AIAgent<String, String> agent() {
        var settings = new OpenAIClientSettings(
            System.getenv("PRODUCER_MODEL_URL"), new ConnectionTimeoutConfig(), "v1/chat/completions", "v1/responses", "v1/embeddings", "v1/moderations", "v1/models");
        var url = System.getenv("PRODUCER_RECEIVER_URL") + "/v1/traces";
        return AIAgent.builder()
            .id("bakery")
            .promptExecutor(PromptExecutor.builder().openAI("unused", settings).build())
            .llmModel(OpenAIModels.Chat.GPT4o)
            .systemPrompt("Answer by weighing.")
            .toolRegistry(ToolRegistry.builder().tools(new Weighing()).build())
            .maxIterations(100)
            .install(OpenTelemetry.Feature, config -> {
                config.setServiceInfo("bakery", "1");
                config.setVerbose(script.get("content").asBoolean());
                config.addSpanExporter(new Exporter(OtlpHttpSpanExporter.builder().setEndpoint(url).build(), sent));
            })
            .build();
    }

    public static class Weighing implements ToolSet {
        @Tool
        @LLMDescription(value = "Weighs a thing.")
        public String weigh(@LLMDescription(value = "The thing.") String what) {
            JsonNode result = ((ArrayNode) script.get("results").get(what)).remove(0);
            if (result.get("fails").asBoolean()) {
                throw new IllegalStateException(result.get("text").asText());
            }
            return result.get("text").asText();
        }
    }
}
