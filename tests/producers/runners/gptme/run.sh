gptme="gptme --non-interactive --tool-format tool --model openai/scripted --workspace $PWD"
$gptme --name run "$PRODUCER_OBJECTIVE"
if [ "$PRODUCER_RESUMED" ]; then $gptme --name run --resume "$PRODUCER_RESUMED"; fi
