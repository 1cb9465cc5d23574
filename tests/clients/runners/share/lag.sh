java -cp "$1/jars/*" org.apache.kafka.tools.consumer.group.ShareGroupCommand --bootstrap-server "$KAFKA" \
    --describe --group "$GROUP" --offsets | awk '$1 == ENVIRON["GROUP"] { print $5 }'
