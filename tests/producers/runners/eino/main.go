// An agent of Eino's ADK with a tool, with an agent as a tool, or with an agent that takes over.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"

	"github.com/cloudwego/eino-ext/components/model/openai"
	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/components/tool/utils"
	"github.com/cloudwego/eino/compose"
)

var script struct {
	Run       string
	Objective string
	Limit     *int
	Results   map[string][]struct {
		Text  string
		Fails bool
	}
}

type thing struct {
	What string `json:"what"`
}

func weigh(_ context.Context, input *thing) (string, error) {
	result := script.Results[input.What][0]
	script.Results[input.What] = script.Results[input.What][1:]
	if result.Fails {
		return "", errors.New(result.Text)
	}
	return result.Text, nil
}

func agent(ctx context.Context, name string, tools ...tool.BaseTool) adk.Agent {
	model, err := openai.NewChatModel(ctx, &openai.ChatModelConfig{
		BaseURL: os.Getenv("OPENAI_BASE_URL"), APIKey: "unused", Model: "scripted",
	})
	check(err)
	config := &adk.ChatModelAgentConfig{Name: name, Description: "Weighs.", Instruction: "Answer by weighing.", Model: model}
	config.ToolsConfig = adk.ToolsConfig{ToolsNodeConfig: compose.ToolsNodeConfig{Tools: tools}}
	if script.Limit != nil {
		config.MaxIterations = *script.Limit
	}
	made, err := adk.NewChatModelAgent(ctx, config)
	check(err)
	return made
}

func main() {
	ctx := context.Background()
	check(json.Unmarshal([]byte(os.Getenv("PRODUCER_SCRIPT")), &script))
	weighing, err := utils.InferTool("weigh", "Weighs a thing.", weigh)
	check(err)
	asked := agent(ctx, "baker", weighing)
	switch script.Run {
	case "sub_agent":
		asked = agent(ctx, "seller", adk.NewAgentTool(ctx, asked))
	case "handoff":
		asked, err = adk.SetSubAgents(ctx, agent(ctx, "seller"), []adk.Agent{asked})
		check(err)
	}

	file, err := os.Create(os.Getenv("PRODUCER_OUTPUT") + "/events.jsonl")
	check(err)
	events := adk.NewRunner(ctx, adk.RunnerConfig{Agent: asked}).Query(ctx, script.Objective)
	for event, ok := events.Next(); ok; event, ok = events.Next() {
		check(json.NewEncoder(file).Encode(event))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
