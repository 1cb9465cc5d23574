# Prompts are piped, since those of the command line get quotes.
export OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_MODELS_FETCH=1 OPENCODE_DISABLE_DEFAULT_PLUGINS=1
trap : INT
mkdir -p ~/.config/opencode
cat > ~/.config/opencode/opencode.json <<END
{
  "share": "disabled",
  "permission": "allow",
  "model": "local/scripted",
  "small_model": "local/scripted",
  "agent": {"build": {"steps": ${PRODUCER_LIMIT:-100}}},
  "provider": {"local": {
    "npm": "@ai-sdk/openai-compatible",
    "options": {"baseURL": "$OPENAI_BASE_URL", "apiKey": "unused"},
    "models": {"scripted": {"limit": {"context": 100000, "output": 8000}}}
  }}
}
END
printf %s "$PRODUCER_OBJECTIVE" | opencode run --format json > "$PRODUCER_OUTPUT/events.jsonl"
if [ "$PRODUCER_RESUMED" ]; then printf %s "$PRODUCER_RESUMED" | opencode run --continue; fi
session=$(opencode session list --format json | node -p 'JSON.parse(fs.readFileSync(0))[0].id')
opencode export "$session" > "$PRODUCER_OUTPUT/session.json"
cp ~/.local/share/opencode/opencode.db* "$PRODUCER_OUTPUT"
