exec java -cp "$1/jars/*" org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server "$KAFKA" \
    --topic "$TOPIC" --group "$GROUP" --from-beginning ${SETTING:+--isolation-level read_committed}
