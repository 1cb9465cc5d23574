export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_AUTOUPDATER=1
claude="claude --print --model scripted --allowed-tools Bash ${PRODUCER_LIMIT:+--max-turns $PRODUCER_LIMIT}"
$claude --output-format stream-json --verbose "$PRODUCER_OBJECTIVE" > "$PRODUCER_OUTPUT/events.jsonl"
if [ "$PRODUCER_RESUMED" ]; then $claude --continue "$PRODUCER_RESUMED"; fi
