// A network of AgentKit with an agent that has a tool, or with one that has a tool that runs another.

import { createAgent, createNetwork, createTool, openai } from '@inngest/agent-kit';
import { writeFileSync } from 'node:fs';
import { z } from 'zod';
import { INSTRUCTIONS, OUTPUT, SCRIPT, weigh } from './bakery.mjs';

const model = openai({ model: 'scripted', baseUrl: `${process.env.OPENAI_BASE_URL}/` });
const weighing = createTool({
  name: 'weigh', description: 'Weighs a thing.', parameters: z.object({ what: z.string() }), handler: async (input) => weigh(input),
});
const baker = createAgent({ name: 'baker', description: 'Weighs.', system: INSTRUCTIONS, model, tools: [weighing] });
const asking = createTool({
  name: 'ask_baker', description: 'Asks.', parameters: z.object({ input: z.string() }),
  handler: async ({ input }) => (await networkOf(baker).run(input)).state.results.at(-1).output.at(-1).content,
});
const seller = createAgent({ name: 'seller', description: 'Sells.', system: INSTRUCTIONS, model, tools: [asking] });

function networkOf(agent) {
  const isDone = (result) => result && !result.toolCalls.length;
  return createNetwork({
    name: 'shop', agents: [agent], maxIter: SCRIPT.limit ?? 10,
    router: ({ lastResult }) => (isDone(lastResult) ? undefined : agent),
  });
}

const network = networkOf(SCRIPT.run === 'sub_agent' ? seller : baker);
try {
  const { state } = await network.run(SCRIPT.objective);
  writeFileSync(`${OUTPUT}/state.json`, JSON.stringify({ data: state.data, results: state.results }));
} catch (error) {
  console.error(error);
}
process.exit();
