# Copies the topic within one cluster, and prints the committed records of the copy.
cat >mirror.properties <<END
clusters=source,target
source.bootstrap.servers=$KAFKA
target.bootstrap.servers=$KAFKA
source->target.enabled=true
source->target.topics=$TOPIC
${SETTING:+source->target.consumer.isolation.level=read_committed}
emit.heartbeats.enabled=false
emit.checkpoints.enabled=false
replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
offset.storage.topic=offsets-$GROUP
status.storage.topic=status-$GROUP
config.storage.topic=config-$GROUP
END
java -Xmx512m -cp "$1/jars/*" org.apache.kafka.connect.mirror.MirrorMaker mirror.properties >&2 &
echo metadata.max.age.ms=1000 >consumer.properties
exec java -cp "$1/jars/*" org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server "$KAFKA" \
    --topic "source.$TOPIC" --from-beginning --isolation-level read_committed --consumer.config consumer.properties
