// LangGraph's agent with a tool, or with a tool that runs another.

import { LangChainInstrumentation } from '@arizeai/openinference-instrumentation-langchain';
import * as callbacks from '@langchain/core/callbacks/manager';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { createAgent } from 'langchain';
import { z } from 'zod';
import { INSTRUCTIONS, SCRIPT, tracerProvider, weigh } from './bakery.mjs';

const provider = tracerProvider();
const hidden = { hideInputs: !SCRIPT.content, hideOutputs: !SCRIPT.content };
new LangChainInstrumentation({ tracerProvider: provider, traceConfig: hidden }).manuallyInstrument(callbacks);

const useResponsesApi = process.env.OPENAI_AGENTS_API === 'responses';
const model = new ChatOpenAI({ model: 'scripted', maxRetries: 0, useResponsesApi, streaming: SCRIPT.stream });
const weighing = tool(async (input) => weigh(input), {
  name: 'weigh', description: 'Weighs a thing.', schema: z.object({ what: z.string() }),
});
const baker = createAgent({ model, systemPrompt: INSTRUCTIONS, tools: [weighing], name: 'baker' });
const asking = tool(async ({ input }) => (await asked(baker, input)).messages.at(-1).content, {
  name: 'ask_baker', description: 'Asks.', schema: z.object({ input: z.string() }),
});
const seller = createAgent({ model, systemPrompt: INSTRUCTIONS, tools: [asking], name: 'seller' });

function asked(agent, content) {
  return agent.invoke({ messages: [{ role: 'user', content }] }, { recursionLimit: SCRIPT.limit ? SCRIPT.limit * 2 : 25 });
}

try {
  await asked(SCRIPT.run === 'sub_agent' ? seller : baker, SCRIPT.objective);
} catch (error) {
  console.error(error);
} finally {
  await provider.shutdown();
}
