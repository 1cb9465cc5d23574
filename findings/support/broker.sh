# A broker of Apache Kafka 4.4.0 on loopback, with Kafka's own defaults where a single broker allows them:
# its address is $bootstrap, its Java classes are in kafka/.
source "$(dirname "${BASH_SOURCE[0]}")/install.sh"

jars org.apache.kafka:kafka_2.13:4.4.0 kafka
read -r port controller < <(python3 - <<'PY'
import socket
with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
    print(one.getsockname()[1], other.getsockname()[1])
PY
)
bootstrap=127.0.0.1:$port
cat >server.properties <<END_OF_PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://$bootstrap,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://$bootstrap
log.dirs=$work/data
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
END_OF_PROPERTIES
quietly java -cp 'kafka/*' kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAQ -c server.properties
java -Xmx512m -cp 'kafka/*' kafka.Kafka server.properties >broker.log 2>&1 &
broker=$!
quietly timeout 60 bash -c "until : >/dev/tcp/${bootstrap/://}; do sleep 0.2; done"

# transactions TOPIC: write one committed transaction of three records to partition 0, then an aborted one of two.
transactions() {
    quietly java -cp 'kafka/*' "$support/Transactions.java" "$bootstrap" "$1"
}
