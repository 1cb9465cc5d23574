export GEMINI_CLI_TRUST_WORKSPACE=true GEMINI_CLI_NO_RELAUNCH=true
mkdir ~/.gemini
cat > ~/.gemini/settings.json <<END
{
  "general": {"enableAutoUpdate": false},
  "model": {"maxSessionTurns": ${PRODUCER_LIMIT:--1}},
  "privacy": {"usageStatisticsEnabled": false},
  "security": {"auth": {"selectedType": "gemini-api-key"}}
}
END
gemini="gemini --yolo --model gemini-2.5-flash"
$gemini --output-format stream-json --prompt "$PRODUCER_OBJECTIVE" > "$PRODUCER_OUTPUT/events.jsonl"
if [ "$PRODUCER_RESUMED" ]; then $gemini --resume latest --prompt "$PRODUCER_RESUMED"; fi
