#!/usr/bin/env bash
# Expected: a command that ends with exit code 3 has failed: the model is told so, or else the session says it.
# Seen: the model and the session of Continue's command line get what the command printed, and no more. The call is "done", as that of
#   a command that went well.
# Versions: @continuedev/cli 1.5.47, node 24.21.0, 2026-11-28
# So: metadata.unrecorded (docs/reference/conversion.md) names it, and a conversion warns that it is not known whether commands failed.
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
quietly npm install --no-audit --no-fund @continuedev/cli@1.5.47 node@24.21.0

cat >model.mjs <<'JS'
import { createServer } from 'node:http'
import { writeFileSync } from 'node:fs'

const calls = ["echo 'the scale is off'; exit 3", "echo '812 g'"].map((command, n) => (
  { index: n, id: `call_${n}`, type: 'function', function: { name: 'Bash', arguments: JSON.stringify({ command }) } }
))
const server = createServer(async (request, response) => {
  let body = ''
  for await (const part of request) body += part
  if (!request.url.endsWith('/chat/completions')) return response.writeHead(404).end()
  const { messages, tools, stream } = JSON.parse(body)
  const results = messages.filter((message) => message.role === 'tool')
  const called = tools?.length && !results.length
  if (results.length) writeFileSync('told', results.map((each) => JSON.stringify(each.content)).join('\n') + '\n')
  const told = called ? { tool_calls: calls } : { content: 'Done.' }
  const choice = { index: 0, finish_reason: called ? 'tool_calls' : 'stop' }
  const answer = { id: 'c', created: 1, model: 'scripted' }
  if (!stream) {
    response.writeHead(200, { 'Content-Type': 'application/json' })
    return response.end(JSON.stringify({ ...answer, object: 'chat.completion', choices: [{ ...choice, message: { role: 'assistant', ...told } }] }))
  }
  response.writeHead(200, { 'Content-Type': 'text/event-stream' })
  response.write(`data: ${JSON.stringify({ ...answer, object: 'chat.completion.chunk', choices: [{ ...choice, delta: { role: 'assistant', ...told } }] })}\n\n`)
  response.end('data: [DONE]\n\n')
}).listen(0, '127.0.0.1', () => writeFileSync('port', `${server.address().port}`))
JS
node_modules/.bin/node model.mjs &
broker=$!
until [ -s port ]; do sleep 0.1; done
cat >config.yaml <<YAML
name: local
version: 1.0.0
schema: v1
models:
  - {name: scripted, provider: openai, model: scripted, apiBase: "http://127.0.0.1:$(cat port)/v1", apiKey: unused, capabilities: [tool_use]}
YAML
mkdir home
quietly env HOME="$work/home" PATH="$work/node_modules/.bin:$PATH" CONTINUE_TELEMETRY_ENABLED=0 \
    HTTPS_PROXY=http://127.0.0.1:9 NO_PROXY=127.0.0.1 cn --config config.yaml --auto --print 'Weigh the loaf.' </dev/null
{
    sed 's/^/told to the model: /' told
    grep -ho '"status": *"[a-z]*"' home/.continue/sessions/*-*.json | sed 's/^/in the session: /'
} | tee output
diff - output <<'SEEN'
told to the model: "the scale is off\n"
told to the model: "812 g\n"
in the session: "status": "done"
in the session: "status": "done"
SEEN
