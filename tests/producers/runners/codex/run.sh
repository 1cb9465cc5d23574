mkdir ~/.codex
cat > ~/.codex/config.toml <<END
model = "scripted"
model_provider = "local"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.local]
name = "local"
base_url = "$OPENAI_BASE_URL"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
END
codex exec --skip-git-repo-check --json "$PRODUCER_OBJECTIVE" > "$PRODUCER_OUTPUT/events.jsonl"
if [ "$PRODUCER_RESUMED" ]; then codex exec resume --skip-git-repo-check --last "$PRODUCER_RESUMED"; fi
