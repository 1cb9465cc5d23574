mkdir ~/.qwen
cat > ~/.qwen/settings.json <<END
{"general": {"enableAutoUpdate": false}, "privacy": {"usageStatisticsEnabled": false}}
END
qwen="qwen --yolo --auth-type openai --model scripted --max-session-turns ${PRODUCER_LIMIT:--1}"
$qwen "$PRODUCER_OBJECTIVE"
if [ "$PRODUCER_RESUMED" ]; then $qwen --continue "$PRODUCER_RESUMED"; fi
