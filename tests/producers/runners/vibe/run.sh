mkdir ~/.vibe
cat > ~/.vibe/config.toml <<END
active_model = "scripted"
enable_telemetry = false
enable_update_checks = false

[[providers]]
name = "local"
api_base = "$OPENAI_BASE_URL"
api_key_env_var = "OPENAI_API_KEY"
api_style = "openai"
backend = "generic"

[[models]]
name = "scripted"
provider = "local"
alias = "scripted"
END
vibe="vibe --yolo --trust ${PRODUCER_LIMIT:+--max-turns $PRODUCER_LIMIT}"
$vibe --prompt "$PRODUCER_OBJECTIVE" --output streaming > "$PRODUCER_OUTPUT/events.jsonl"
if [ "$PRODUCER_RESUMED" ]; then $vibe --continue --prompt "$PRODUCER_RESUMED"; fi
