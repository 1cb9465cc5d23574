// An agent of VoltAgent with a tool, or with a second agent that it delegates to.

import { createOpenAI } from '@ai-sdk/openai';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { BatchSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { Agent, createTool, VoltAgentObservability } from '@voltagent/core';
import { z } from 'zod';
import { INSTRUCTIONS, SCRIPT, weigh } from './bakery.mjs';

const observability = new VoltAgentObservability({ spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())] });
const weighing = createTool({
  name: 'weigh', description: 'Weighs a thing.', parameters: z.object({ what: z.string() }), execute: async (input) => weigh(input),
});
const common = { model: createOpenAI().chat('scripted'), instructions: INSTRUCTIONS, observability };
const baker = new Agent({ ...common, name: 'baker', purpose: 'Weighs.', tools: [weighing] });
const asked = SCRIPT.run === 'sub_agent' ? new Agent({ ...common, name: 'seller', subAgents: [baker] }) : baker;
const options = { maxSteps: SCRIPT.limit ?? 10, maxRetries: 0 };

try {
  if (SCRIPT.stream) await (await asked.streamText(SCRIPT.objective, options)).text;
  else await asked.generateText(SCRIPT.objective, options);
} catch (error) {
  console.error(error);
} finally {
  await observability.forceFlush();
}
process.exit();
