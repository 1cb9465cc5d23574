cline auth --provider openai-compatible --apikey unused --modelid scripted --baseurl "$OPENAI_BASE_URL"
cline "$PRODUCER_OBJECTIVE"
if [ "$PRODUCER_RESUMED" ]; then cline --id "$(ls ~/.cline/data/sessions)" "$PRODUCER_RESUMED"; fi
