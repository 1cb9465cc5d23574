export CONTINUE_TELEMETRY_ENABLED=0
cat > "$PRODUCER_OUTPUT/config.yaml" <<END
name: local
version: 1.0.0
schema: v1
models:
  - {name: scripted, provider: openai, model: scripted, apiBase: $OPENAI_BASE_URL, apiKey: unused, capabilities: [tool_use]}
END
cn="cn --config $PRODUCER_OUTPUT/config.yaml --auto --print"
$cn "$PRODUCER_OBJECTIVE"
if [ "$PRODUCER_RESUMED" ]; then $cn --resume "$PRODUCER_RESUMED"; fi
