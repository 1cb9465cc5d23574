// Genkit's loop in Go with a tool, or with a tool that runs another.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/core/tracing"
	"github.com/firebase/genkit/go/genkit"
	"github.com/firebase/genkit/go/plugins/compat_oai/openai"
	"github.com/openai/openai-go/option"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const instructions = "Answer by weighing."

var script struct {
	Run       string
	Objective string
	Stream    bool
	Limit     *int
	Results   map[string][]struct {
		Text  string
		Fails bool
	}
}

type thing struct {
	What string `json:"what"`
}

type request struct {
	Input string `json:"input"`
}

func weigh(_ *ai.ToolContext, input thing) (string, error) {
	result := script.Results[input.What][0]
	script.Results[input.What] = script.Results[input.What][1:]
	if result.Fails {
		return "", errors.New(result.Text)
	}
	return result.Text, nil
}

func main() {
	ctx := context.Background()
	check(json.Unmarshal([]byte(os.Getenv("PRODUCER_SCRIPT")), &script))
	exporter, err := otlptracehttp.New(ctx)
	check(err)
	provider := tracing.TracerProvider()
	provider.RegisterSpanProcessor(sdktrace.NewBatchSpanProcessor(exporter))
	defer func() { check(provider.Shutdown(ctx)) }()

	plugin := &openai.OpenAI{Opts: []option.RequestOption{option.WithBaseURL(os.Getenv("OPENAI_BASE_URL"))}}
	g := genkit.Init(ctx, genkit.WithPlugins(plugin))
	weighing := genkit.DefineTool(g, "weigh", "Weighs a thing.", weigh)
	turns := 10
	if script.Limit != nil {
		turns = *script.Limit
	}
	generate := func(ctx context.Context, prompt string, tool ai.ToolRef) (string, error) {
		options := []ai.GenerateOption{
			ai.WithModelName("openai/gpt-4o"), ai.WithSystem(instructions), ai.WithPrompt(prompt),
			ai.WithTools(tool), ai.WithMaxTurns(turns),
		}
		if script.Stream {
			options = append(options, ai.WithStreaming(func(context.Context, *ai.ModelResponseChunk) error { return nil }))
		}
		response, err := genkit.Generate(ctx, g, options...)
		if err != nil {
			return "", err
		}
		return response.Text(), nil
	}
	asking := genkit.DefineTool(g, "ask_baker", "Asks.", func(ctx *ai.ToolContext, input request) (string, error) {
		return generate(ctx.Context, input.Input, weighing)
	})

	var tool ai.ToolRef = weighing
	if script.Run == "sub_agent" {
		tool = asking
	}
	if _, err := generate(ctx, script.Objective, tool); err != nil {
		log.Print(err)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
