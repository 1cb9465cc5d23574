// An agent with a tool, one that hands over to another, or one that asks another.

import { Agent, addTraceProcessor, getGlobalTraceProvider, run, setOpenAIAPI, setTraceProcessors, tool } from '@openai/agents';
import * as agents from '@openai/agents';
import { appendFileSync } from 'node:fs';
import { z } from 'zod';
import { INSTRUCTIONS, OUTPUT, SCRIPT, VARIANT, tracerProvider, weigh } from './bakery.mjs';

if (process.env.OPENAI_AGENTS_API) setOpenAIAPI(process.env.OPENAI_AGENTS_API);

class ToFile {
  async onTraceStart(trace) { this.write(trace); }
  async onTraceEnd() {}
  async onSpanStart() {}
  async onSpanEnd(span) { this.write(span); }
  async shutdown() {}
  async forceFlush() {}
  write(item) { appendFileSync(`${OUTPUT}/spans.jsonl`, `${JSON.stringify(item.toJSON())}\n`); }
}

let provider;
if (VARIANT.startsWith('own')) {
  setTraceProcessors([new ToFile()]);
} else {
  const { OpenAIAgentsInstrumentation } = await import('@arizeai/openinference-instrumentation-openai-agents');
  provider = tracerProvider();
  const hidden = { hideInputs: !SCRIPT.content, hideOutputs: !SCRIPT.content };
  const instrumentation = new OpenAIAgentsInstrumentation({ tracerProvider: provider, traceConfig: hidden });
  instrumentation.manuallyInstrument(agents);
}

const weighing = tool({
  name: 'weigh', description: 'Weighs a thing.',
  parameters: z.object({ what: z.string() }), execute: async (input) => weigh(input),
});
const common = { model: 'scripted', instructions: INSTRUCTIONS };
const baker = new Agent({ ...common, name: 'baker', tools: [weighing] });
const AGENTS = {
  handoff: () => new Agent({ ...common, name: 'seller', handoffs: [baker] }),
  sub_agent: () => new Agent({ ...common, name: 'seller', tools: [baker.asTool({ toolName: 'ask_baker', toolDescription: 'Asks.' })] }),
};
const agent = AGENTS[SCRIPT.run]?.() ?? baker;

try {
  const result = await run(agent, SCRIPT.objective, { stream: SCRIPT.stream, maxTurns: SCRIPT.limit ?? 10 });
  if (SCRIPT.stream) await result.completed;
} catch (error) {
  console.error(error);
} finally {
  await getGlobalTraceProvider().forceFlush();
  await provider?.shutdown();
}
