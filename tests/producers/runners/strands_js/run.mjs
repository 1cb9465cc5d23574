// An agent of Strands with a tool, or with a tool that runs another.

import { Agent, tool } from '@strands-agents/sdk';
import { OpenAIModel } from '@strands-agents/sdk/models/openai';
import { z } from 'zod';
import { INSTRUCTIONS, SCRIPT, tracerProvider, weigh } from './bakery.mjs';

const provider = tracerProvider();
const model = new OpenAIModel({ api: 'chat', modelId: 'scripted' });
const weighing = tool({
  name: 'weigh', description: 'Weighs a thing.', inputSchema: z.object({ what: z.string() }), callback: (input) => weigh(input),
});
const common = { model, systemPrompt: INSTRUCTIONS, printer: false };
const baker = new Agent({ ...common, name: 'baker', tools: [weighing] });
const asking = tool({
  name: 'ask_baker', description: 'Asks.', inputSchema: z.object({ input: z.string() }),
  callback: async ({ input }) => (await baker.invoke(input)).toString(),
});
const seller = new Agent({ ...common, name: 'seller', tools: [asking] });

try {
  await (SCRIPT.run === 'sub_agent' ? seller : baker).invoke(SCRIPT.objective, { limits: { turns: SCRIPT.limit ?? 10 } });
} catch (error) {
  console.error(error);
} finally {
  await provider.shutdown();
}
