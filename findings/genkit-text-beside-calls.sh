#!/usr/bin/env bash
# Expected: an answer of chat completions with a text and a call becomes a message with both, whose finish reason is the model's.
# Seen: Genkit's plugin for OpenAI's API keeps of an answer with calls only the calls, and the model does not get its text back. In
#   the spans, the text is left in `raw` alone. The finish reason is "stop", as it is of an answer without calls.
# Versions: genkit 1.42.0, @genkit-ai/compat-oai 1.42.0, node 24.21.0, 2026-11-28
# So: texts are read from `raw` where it has more than the message (schemas/knowledgepulse_convert/spans/dialects.py).
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
quietly npm install --no-audit --no-fund genkit@1.42.0 @genkit-ai/compat-oai@1.42.0 node@24.21.0

cat >generate.mjs <<'JS'
import { createServer } from 'node:http'
import { compatOaiModelRef, openAICompatible } from '@genkit-ai/compat-oai'
import { genkit, z } from 'genkit'

const weighing = { id: 'call_0', type: 'function', function: { name: 'weigh', arguments: '{"what": "loaf"}' } }
const answers = [
  { message: { role: 'assistant', content: 'I weigh the loaf.', tool_calls: [weighing] }, finish_reason: 'tool_calls' },
  { message: { role: 'assistant', content: 'Done.' }, finish_reason: 'stop' },
]
const requests = []
const server = createServer(async (request, response) => {
  let body = ''
  for await (const part of request) body += part
  const answer = answers[requests.push(JSON.parse(body)) - 1]
  response.writeHead(200, { 'Content-Type': 'application/json' })
  response.end(JSON.stringify({ id: 'c', object: 'chat.completion', created: 1, model: 'scripted', choices: [{ index: 0, ...answer }] }))
}).listen(0, '127.0.0.1', async () => {
  const baseURL = `http://127.0.0.1:${server.address().port}/v1`
  const ai = genkit({ plugins: [openAICompatible({ name: 'local', baseURL, apiKey: 'unused' })] })
  const weigh = ai.defineTool(
    { name: 'weigh', description: 'Weighs.', inputSchema: z.object({ what: z.string() }), outputSchema: z.string() },
    async () => '812 g',
  )
  const model = compatOaiModelRef({ name: 'local/scripted' })
  const first = await ai.generate({ model, prompt: 'Weigh the loaf.', tools: [weigh], returnToolRequests: true })
  console.log(`message: ${Object.keys(Object.assign({}, ...first.message.content))}, finish reason ${first.finishReason}`)
  requests.length = 0
  await ai.generate({ model, prompt: 'Weigh the loaf.', tools: [weigh] })
  const said = requests[1].messages.find((message) => message.role === 'assistant')
  console.log(`told to the model: ${JSON.stringify(said.content ?? null)}, ${said.tool_calls.length} call`)
  server.close()
})
JS
GENKIT_ENV=prod node_modules/.bin/node generate.mjs | tee output
diff - output <<'SEEN'
message: toolRequest, finish reason stop
told to the model: null, 1 call
SEEN
