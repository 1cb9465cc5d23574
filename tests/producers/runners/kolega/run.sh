trap : INT
# It counts tokens before each turn, by a table that would be downloaded; llama-index-core has a copy.
export TIKTOKEN_CACHE_DIR="$(python -c 'import llama_index.core as of; print(of.__path__[0])')/_static/tiktoken_cache"
say() {
    kolega-code ask --save --session bakery --permission-mode auto --atif-output "$PRODUCER_OUTPUT/trajectory.json" \
        --endpoint-url "$OPENAI_BASE_URL" --endpoint-api-key unused --endpoint-context 200000 --model scripted "$1"
}
say "$PRODUCER_OBJECTIVE"
[ -z "$PRODUCER_RESUMED" ] || say "$PRODUCER_RESUMED"
