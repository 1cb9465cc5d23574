cline auth --provider openai-compatible --apikey unused --modelid scripted --baseurl "$OPENAI_BASE_URL"
cline "$PRODUCER_OBJECTIVE"
cline hub stop
