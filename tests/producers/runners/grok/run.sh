trap : INT
mkdir ~/.grok
cat > ~/.grok/config.toml <<END
[cli]
auto_update = false
[features]
telemetry = false
[models]
default = "scripted"
[model.scripted]
model = "scripted"
base_url = "$OPENAI_BASE_URL"
api_key = "unused"
context_window = 200000
END
grok="grok --yolo ${PRODUCER_LIMIT:+--max-turns $PRODUCER_LIMIT}"
$grok --single "$PRODUCER_OBJECTIVE"
if [ "$PRODUCER_RESUMED" ]; then $grok --continue --single "$PRODUCER_RESUMED"; fi
