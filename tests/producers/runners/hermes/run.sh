trap : INT
mkdir -p ~/.hermes
cat > ~/.hermes/config.yaml <<END
model:
  default: scripted
  provider: custom
  base_url: $OPENAI_BASE_URL
  api_key: unused
agent:
  max_turns: ${PRODUCER_LIMIT:-100}
END
hermes -z "$PRODUCER_OBJECTIVE" --yolo
hermes sessions export "$PRODUCER_OUTPUT/session.jsonl"
cp ~/.hermes/state.db* "$PRODUCER_OUTPUT"
