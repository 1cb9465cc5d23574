export KIMI_DISABLE_TELEMETRY=1 KIMI_CODE_NO_AUTO_UPDATE=1 KIMI_DISABLE_CRON=1
export KIMI_MODEL_NAME=scripted KIMI_MODEL_PROVIDER_TYPE=openai KIMI_MODEL_BASE_URL="$OPENAI_BASE_URL" KIMI_MODEL_API_KEY=unused
mkdir ~/.kimi-code
cat > ~/.kimi-code/config.toml <<END
telemetry = false
[loop_control]
max_steps_per_turn = ${PRODUCER_LIMIT:-100}
END
kimi --output-format stream-json --prompt "$PRODUCER_OBJECTIVE" > "$PRODUCER_OUTPUT/events.jsonl"
if [ "$PRODUCER_RESUMED" ]; then kimi --continue --prompt "$PRODUCER_RESUMED"; fi
