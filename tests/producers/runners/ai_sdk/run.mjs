// A loop of the AI SDK, whose tool may run another.

import { createOpenAI } from '@ai-sdk/openai';
import { OpenTelemetry } from '@ai-sdk/otel';
import { generateText, registerTelemetry, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { INSTRUCTIONS, SCRIPT, tracerProvider, weigh } from './bakery.mjs';

const provider = tracerProvider();
registerTelemetry(new OpenTelemetry());
const model = createOpenAI()('scripted');

const weighing = { weigh: tool({ inputSchema: z.object({ what: z.string() }), execute: async (input) => weigh(input) }) };
const asking = {
  ask_baker: tool({
    inputSchema: z.object({ input: z.string() }),
    execute: async ({ input }) => (await generateText(settings(input, weighing, 'baker'))).text,
  }),
};

function settings(prompt, tools, functionId) {
  return {
    model, prompt, tools,
    instructions: INSTRUCTIONS,
    maxRetries: 0,
    stopWhen: stepCountIs(SCRIPT.limit ?? 10),
    telemetry: { functionId, recordInputs: SCRIPT.content, recordOutputs: SCRIPT.content },
  };
}

const run = settings(SCRIPT.objective, SCRIPT.run === 'sub_agent' ? asking : weighing, 'seller');
if (SCRIPT.stream) await streamText(run).text;
else await generateText(run);
await provider.shutdown();
