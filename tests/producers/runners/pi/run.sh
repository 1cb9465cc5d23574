export PI_OFFLINE=1 PI_TELEMETRY=0
mkdir -p ~/.pi/agent
cat > ~/.pi/agent/models.json <<END
{"providers": {"local": {
  "baseUrl": "$OPENAI_BASE_URL", "api": "openai-completions", "apiKey": "unused", "models": [{"id": "scripted"}]
}}}
END
pi="pi --provider local --model scripted --mode json --print"
$pi "$PRODUCER_OBJECTIVE" > "$PRODUCER_OUTPUT/events.jsonl"
if [ "$PRODUCER_RESUMED" ]; then $pi --continue "$PRODUCER_RESUMED"; fi
