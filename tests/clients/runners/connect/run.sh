# The file connector's sink prints values if it has no file. Its group is named after the connector.
cat >worker.properties <<END
bootstrap.servers=$KAFKA
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.file.filename=$PWD/offsets
offset.flush.interval.ms=5000
plugin.discovery=service_load
listeners=http://127.0.0.1:0
END
cat >sink.properties <<END
name=sink
connector.class=org.apache.kafka.connect.file.FileStreamSinkConnector
topics=$TOPIC
consumer.override.group.id=$GROUP
consumer.override.auto.offset.reset=earliest
${SETTING:+consumer.override.isolation.level=read_committed}
END
exec java -cp "$1/jars/*" org.apache.kafka.connect.cli.ConnectStandalone worker.properties sink.properties
