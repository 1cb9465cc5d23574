// An agent of LlamaIndex with a tool, with a tool that runs another, or with an agent that takes over.

import { openai } from '@llamaindex/openai';
import { agent, multiAgent, stopAgentEvent } from '@llamaindex/workflow';
import { tool } from 'llamaindex';
import { appendFileSync, writeFileSync } from 'node:fs';
import { z } from 'zod';
import { INSTRUCTIONS, OUTPUT, SCRIPT, weigh } from './bakery.mjs';

const llm = openai({ model: 'gpt-4o', baseURL: process.env.OPENAI_BASE_URL, maxRetries: 0 });
const weighing = tool({
  name: 'weigh', description: 'Weighs a thing.', parameters: z.object({ what: z.string() }), execute: (input) => weigh(input),
});
const common = { llm, systemPrompt: INSTRUCTIONS };
const baker = agent({ ...common, name: 'baker', description: 'Weighs.', tools: [weighing] });
const asking = tool({
  name: 'ask_baker', description: 'Asks.', parameters: z.object({ input: z.string() }),
  execute: async ({ input }) => (await baker.run(input)).data.result,
});
const seller = agent({ ...common, name: 'seller', description: 'Sells.', tools: [asking], canHandoffTo: ['baker'] });

const asked = { sub_agent: seller, handoff: multiAgent({ agents: [seller, baker], rootAgent: seller }) }[SCRIPT.run] ?? baker;
try {
  for await (const event of asked.runStream(SCRIPT.objective)) {
    appendFileSync(`${OUTPUT}/events.jsonl`, `${JSON.stringify(event)}\n`);
    if (stopAgentEvent.include(event)) {
      const messages = await event.data.state.memory.get();
      writeFileSync(`${OUTPUT}/messages.json`, JSON.stringify({ messages }));
    }
  }
} catch (error) {
  console.error(error);
}
process.exit();
