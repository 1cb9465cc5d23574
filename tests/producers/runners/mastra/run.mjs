// An agent of Mastra with a tool, or with a tool that runs another.

import { createOpenAI } from '@ai-sdk/openai';
import { Agent } from '@mastra/core/agent';
import { Mastra } from '@mastra/core/mastra';
import { createTool } from '@mastra/core/tools';
import { Observability } from '@mastra/observability';
import { OtelExporter } from '@mastra/otel-exporter';
import { z } from 'zod';
import { INSTRUCTIONS, SCRIPT, weigh } from './bakery.mjs';

const endpoint = `${process.env.PRODUCER_RECEIVER_URL}/v1/traces`;
const exporter = new OtelExporter({ provider: { custom: { endpoint, protocol: 'http/protobuf' } } });
const model = createOpenAI()('scripted');
const weighing = createTool({
  id: 'weigh', description: 'Weighs a thing.', inputSchema: z.object({ what: z.string() }), execute: async (input) => weigh(input),
});
const common = { model, instructions: INSTRUCTIONS };
const baker = new Agent({ ...common, id: 'baker', name: 'baker', tools: { weigh: weighing } });
const asking = createTool({
  id: 'ask_baker', description: 'Asks.', inputSchema: z.object({ input: z.string() }),
  execute: async ({ input }, { tracingContext }) => (await baker.generate(input, { tracingContext })).text,
});
const seller = new Agent({ ...common, id: 'seller', name: 'seller', tools: { ask_baker: asking } });

const hidden = SCRIPT.content ? {} : { hideInput: true, hideOutput: true };
const observability = new Observability({ configs: { otel: { serviceName: 'bakery', exporters: [exporter] } } });
const mastra = new Mastra({ agents: { baker, seller }, observability, logger: false });
const agent = mastra.getAgent(SCRIPT.run === 'sub_agent' ? 'seller' : 'baker');
const options = { maxSteps: SCRIPT.limit ?? 10, tracingOptions: hidden };
if (SCRIPT.stream) await (await agent.stream(SCRIPT.objective, options)).text;
else await agent.generate(SCRIPT.objective, options);
await observability.shutdown();
