import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import dev.langchain4j.agent.tool.ToolExecutionRequest;
import dev.langchain4j.agent.tool.ToolSpecification;
import dev.langchain4j.data.message.ChatMessageDeserializer;
import dev.langchain4j.data.message.ChatMessageSerializer;
import dev.langchain4j.memory.ChatMemory;
import dev.langchain4j.memory.chat.MessageWindowChatMemory;
import dev.langchain4j.model.chat.request.json.JsonObjectSchema;
import dev.langchain4j.model.openai.OpenAiChatModel;
import dev.langchain4j.service.AiServices;
import dev.langchain4j.service.tool.ToolExecutor;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/** A service of LangChain4j with a tool, or with a tool that runs another, and the memory that it keeps. */
public class Bakery {

    interface Service {
        String ask(String text);
    }

    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        JsonNode script = JSON.readTree(System.getenv("PRODUCER_SCRIPT"));
        Path file = Path.of(System.getenv("PRODUCER_OUTPUT"), "memory.json");
        boolean isAsked = script.get("run").asText().equals("sub_agent");
        String resumed = System.getenv("PRODUCER_RESUMED");
        for (String text : new String[] {script.get("objective").asText(), resumed}) {
            if (text.isEmpty()) {
                continue;
            }
            ChatMemory memory = MessageWindowChatMemory.withMaxMessages(100);
            if (Files.exists(file)) {
                ChatMessageDeserializer.messagesFromJson(Files.readString(file)).forEach(memory::add);
            }
            ToolExecutor weigh = (request, id) -> weigh(script, request);
            ToolExecutor ask = (request, id) ->
                service(script, MessageWindowChatMemory.withMaxMessages(100), "weigh", "what", weigh).ask(argument(request, "request"));
            Service service = isAsked
                ? service(script, memory, "ask_baker", "request", ask)
                : service(script, memory, "weigh", "what", weigh);
            try {
                service.ask(text);
            } catch (RuntimeException error) {
                error.printStackTrace();
            }
            Files.writeString(file, ChatMessageSerializer.messagesToJson(memory.messages()));
        }
    }

    static Service service(JsonNode script, ChatMemory memory, String tool, String argument, ToolExecutor executor) {
        var model = OpenAiChatModel.builder().baseUrl(System.getenv("OPENAI_BASE_URL")).apiKey("unused").modelName("scripted");
        var parameters = JsonObjectSchema.builder().addStringProperty(argument).required(argument).build();
        var specification = ToolSpecification.builder().name(tool).description("Weighs or asks.").parameters(parameters).build();
        return AiServices.builder(Service.class)
            .chatModel(model.maxRetries(0).build())
            .chatMemory(memory)
            .systemMessageProvider(id -> "Answer by weighing.")
            .tools(Map.of(specification, executor))
            .maxSequentialToolsInvocations(script.path("limit").asInt(100))
            .build();
    }

    static String argument(ToolExecutionRequest request, String name) {
        try {
            return JSON.readTree(request.arguments()).get(name).asText();
        } catch (Exception error) {
            throw new IllegalArgumentException(error);
        }
    }

    static String weigh(JsonNode script, ToolExecutionRequest request) {
        JsonNode result = ((ArrayNode) script.get("results").get(argument(request, "what"))).remove(0);
        if (result.get("fails").asBoolean()) {
            throw new IllegalStateException(result.get("text").asText());
        }
        return result.get("text").asText();
    }
}
