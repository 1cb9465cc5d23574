// An agent of VoltAgent behind AG-UI, whose client keeps the events and the messages.

import { createOpenAI } from '@ai-sdk/openai';
import { createVoltAgentAGUI } from '@voltagent/ag-ui';
import { Agent, createTool } from '@voltagent/core';
import { appendFileSync, writeFileSync } from 'node:fs';
import { z } from 'zod';
import { INSTRUCTIONS, OUTPUT, SCRIPT, weigh } from './bakery.mjs';

const weighing = createTool({
  name: 'weigh', description: 'Weighs a thing.', parameters: z.object({ what: z.string() }), execute: async (input) => weigh(input),
});
const agent = new Agent({
  name: 'baker', model: createOpenAI().chat('scripted'), instructions: INSTRUCTIONS, tools: [weighing],
  maxSteps: SCRIPT.limit ?? 10, maxRetries: 0,
});
const client = createVoltAgentAGUI({ agent });
const onEvent = ({ event }) => appendFileSync(`${OUTPUT}/events.jsonl`, `${JSON.stringify(event)}\n`);
client.addMessage({ id: 'm1', role: 'user', content: SCRIPT.objective });
try {
  await client.runAgent({ runId: 'run1' }, { onEvent });
} catch (error) {
  console.error(error);
}
writeFileSync(`${OUTPUT}/messages.json`, JSON.stringify({ threadId: client.threadId, messages: client.messages }));
process.exit();
