// An agent of the ADK with a tool, or one that hands over to another.

import { FunctionTool, InMemoryRunner, LlmAgent, StreamingMode } from '@google/adk';
import { z } from 'zod';
import { INSTRUCTIONS, SCRIPT, tracerProvider, weigh } from './bakery.mjs';

process.env.ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS = String(SCRIPT.content);
const provider = tracerProvider();
const weighing = new FunctionTool({
  name: 'weigh', description: 'Weighs a thing.', parameters: z.object({ what: z.string() }), execute: async (input) => weigh(input),
});
const common = { model: 'gemini-2.5-flash', instruction: INSTRUCTIONS };
const baker = new LlmAgent({ ...common, name: 'baker', description: 'Weighs.', tools: [weighing] });
const agent = SCRIPT.run === 'handoff' ? new LlmAgent({ ...common, name: 'seller', subAgents: [baker] }) : baker;

const runner = new InMemoryRunner({ agent, appName: 'bakery' });
const session = await runner.sessionService.createSession({ appName: 'bakery', userId: 'user' });
const runConfig = {
  maxLlmCalls: SCRIPT.limit ?? 10,
  streamingMode: SCRIPT.stream ? StreamingMode.SSE : StreamingMode.NONE,
};
const newMessage = { role: 'user', parts: [{ text: SCRIPT.objective }] };
try {
  for await (const event of runner.runAsync({ userId: 'user', sessionId: session.id, newMessage, runConfig })) void event;
} catch (error) {
  console.error(error);
} finally {
  await provider.shutdown();
}
