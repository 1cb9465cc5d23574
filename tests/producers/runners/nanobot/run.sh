trap : INT
mkdir -p ~/.nanobot
cat > ~/.nanobot/config.json <<END
{"agents": {"defaults": {"model": "scripted", "provider": "custom", "maxToolIterations": ${PRODUCER_LIMIT:-100}}},
 "providers": {"custom": {"apiKey": "unused", "apiBase": "$OPENAI_BASE_URL"}}}
END
nanobot agent --no-markdown --message "$PRODUCER_OBJECTIVE"
if [ "$PRODUCER_RESUMED" ]; then nanobot agent --no-markdown --message "$PRODUCER_RESUMED"; fi
