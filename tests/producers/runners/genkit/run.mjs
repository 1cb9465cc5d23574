// Genkit's loop with a tool, or with a tool that runs another.

import { compatOaiModelRef, openAICompatible } from '@genkit-ai/compat-oai';
import { genkit, z } from 'genkit';
import { disableGenkitOTelInitialization } from 'genkit/tracing';
import { INSTRUCTIONS, SCRIPT, tracerProvider, weigh } from './bakery.mjs';

disableGenkitOTelInitialization();
const provider = tracerProvider();
const ai = genkit({ plugins: [openAICompatible({ name: 'local' })] });
const model = compatOaiModelRef({ name: 'local/scripted' });

const weighing = ai.defineTool(
  { name: 'weigh', description: 'Weighs a thing.', inputSchema: z.object({ what: z.string() }), outputSchema: z.string() },
  async (input) => weigh(input),
);
const asking = ai.defineTool(
  { name: 'ask_baker', description: 'Asks.', inputSchema: z.object({ input: z.string() }), outputSchema: z.string() },
  async ({ input }) => (await ai.generate(settings(input, weighing))).text,
);

function settings(prompt, tool) {
  return { model, prompt, system: INSTRUCTIONS, tools: [tool], maxTurns: SCRIPT.limit ?? 10 };
}

const run = settings(SCRIPT.objective, SCRIPT.run === 'sub_agent' ? asking : weighing);
try {
  await (SCRIPT.stream ? ai.generateStream(run).response : ai.generate(run));
} catch (error) {
  console.error(error);
} finally {
  await provider.shutdown();
}
