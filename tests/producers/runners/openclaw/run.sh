trap : INT
mkdir -p ~/.openclaw
cat > ~/.openclaw/openclaw.json <<END
{
  "models": {"mode": "replace", "providers": {"scripted": {
    "baseUrl": "$OPENAI_BASE_URL", "apiKey": "unused", "api": "openai-completions",
    "models": [{"id": "scripted", "name": "scripted", "contextWindow": 200000, "maxTokens": 8192}]}}},
  "agents": {"defaults": {"model": {"primary": "scripted/scripted"}, "workspace": "$PWD"}},
  "tools": {"exec": {"ask": "off", "security": "full"}}
}
END
say() { openclaw agent --local --session-key agent:main:bakery --message "$1" --json; }
say "$PRODUCER_OBJECTIVE"
[ -z "$PRODUCER_RESUMED" ] || say "$PRODUCER_RESUMED"
openclaw sessions export-trajectory --session-key agent:main:bakery --output bundle
cp ~/.openclaw/agents/main/agent/openclaw-agent.sqlite* "$PRODUCER_OUTPUT"
