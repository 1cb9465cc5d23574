# With a provider of one's own and offline, no account is needed.
export COPILOT_OFFLINE=true COPILOT_AUTO_UPDATE=false COPILOT_PROVIDER_BASE_URL="$OPENAI_BASE_URL" COPILOT_MODEL=scripted
copilot --allow-all --prompt "$PRODUCER_OBJECTIVE"
if [ "$PRODUCER_RESUMED" ]; then copilot --allow-all --continue --prompt "$PRODUCER_RESUMED"; fi
