#!/usr/bin/env bash
# Expected: an answer of chat completions with a text and two calls, streamed as OpenAI does, makes an agent run both tools, and the
#   model gets its text, its two calls and both results back.
# Seen: Strands for JavaScript closes a block of an answer only where the answer ends, and each block replaces the one before it. The
#   last call runs; the text and the other calls are gone, from the conversation and from the spans, without a word.
# Versions: @strands-agents/sdk 1.19.0, openai 6.45.0, node 24.21.0, 2026-11-28
# So: no converter can tell these calls; the table of docs/producers/spans.md names what their spans lack.
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
quietly npm install --no-audit --no-fund @strands-agents/sdk@1.19.0 openai@6.45.0 zod@4.6.7 node@24.21.0

cat >agent.mjs <<'JS'
import { createServer } from 'node:http'
import { Agent, tool } from '@strands-agents/sdk'
import { OpenAIModel } from '@strands-agents/sdk/models/openai'
import { z } from 'zod'

const call = (index, what) => [
  { tool_calls: [{ index, id: `call_${index}`, type: 'function', function: { name: 'weigh', arguments: '' } }] },
  { tool_calls: [{ index, function: { arguments: JSON.stringify({ what }) } }] },
]
const answers = [
  [[{ role: 'assistant', content: '' }, { content: 'I weigh both.' }, ...call(0, 'loaf'), ...call(1, 'tin')], 'tool_calls'],
  [[{ role: 'assistant', content: '' }, { content: 'Done.' }], 'stop'],
]
const requests = []
const server = createServer(async (request, response) => {
  let body = ''
  for await (const part of request) body += part
  const [deltas, reason] = answers[requests.push(JSON.parse(body)) - 1]
  response.writeHead(200, { 'Content-Type': 'text/event-stream' })
  const send = (delta, finish_reason) => response.write(`data: ${JSON.stringify({
    id: 'c', object: 'chat.completion.chunk', created: 1, model: 'scripted', choices: [{ index: 0, delta, finish_reason }],
  })}\n\n`)
  deltas.forEach((delta) => send(delta, null))
  send({}, reason)
  response.end('data: [DONE]\n\n')
}).listen(0, '127.0.0.1', async () => {
  const clientConfig = { baseURL: `http://127.0.0.1:${server.address().port}/v1` }
  const weighed = []
  const weigh = tool({
    name: 'weigh', description: 'Weighs a thing.', inputSchema: z.object({ what: z.string() }),
    callback: ({ what }) => { weighed.push(what); return '1 g' },
  })
  const model = new OpenAIModel({ api: 'chat', modelId: 'scripted', apiKey: 'unused', clientConfig })
  await new Agent({ model, tools: [weigh], printer: false }).invoke('Weigh the loaf and the tin.')
  const said = requests[1].messages.find((message) => message.role === 'assistant')
  console.log(`called: loaf, tin; run: ${weighed}`)
  console.log(`said: "I weigh both."; told to the model: ${JSON.stringify(said.content)}`)
  console.log(`its calls, told to the model: ${said.tool_calls.map((each) => each.id)}`)
  server.close()
})
JS
node_modules/.bin/node agent.mjs | tee output
diff - output <<'SEEN'
called: loaf, tin; run: tin
said: "I weigh both."; told to the model: ""
its calls, told to the model: call_1
SEEN
