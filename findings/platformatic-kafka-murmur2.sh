#!/usr/bin/env bash
# Expected: two clients that both choose partitions by murmur2 put a key into the same partition.
# Seen: @platformatic/kafka takes the hash as an unsigned number, where Java clears its sign bit. They agree if the number of
#   partitions is a power of two, and differ for each key with a negative hash elsewhere.
# Versions: @platformatic/kafka 2.12.1, kafka-clients 4.4.0, 2026-11-28
# So: docs/producers/publish.md names its compatibilityPartitioner; tests on 1, 2, 4 or 8 partitions would not show the difference.
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
jars org.apache.kafka:kafka-clients:4.4.0 kafka
quietly npm install --no-audit --no-fund @platformatic/kafka@2.12.1 node@24.21.0

cat >Partitions.java <<'JAVA'
import org.apache.kafka.common.utils.Utils;

public class Partitions {
    public static void main(String[] arguments) {
        for (int partitions : new int[] {4, 6, 8, 12}) {
            for (int i = 1; i <= 200; i++) {
                int hash = Utils.murmur2(("agent-" + i).getBytes());
                System.out.println(partitions + " agent-" + i + " " + Utils.toPositive(hash) % partitions);
            }
        }
    }
}
JAVA
cat >partitions.mjs <<'JS'
import { compatibilityPartitioner, defaultPartitioner } from '@platformatic/kafka'

const partitioner = process.argv[2] === 'compatible' ? compatibilityPartitioner : defaultPartitioner
for (const partitions of [4, 6, 8, 12]) {
  for (let i = 1; i <= 200; i++) {
    console.log(`${partitions} agent-${i} ${partitioner({}, Buffer.from(`agent-${i}`)) % partitions}`)
  }
}
JS
java -cp 'kafka/*' Partitions.java >java 2>/dev/null
for which in default compatible; do
    node_modules/.bin/node partitions.mjs "$which" | sort >"$which"
    for partitions in 4 6 8 12; do
        same=$(sort java | comm -12 - "$which" | grep -c "^$partitions " || true)
        echo "$which, $partitions partitions: $same of 200 keys as in Java"
    done
done | tee output
diff - output <<'SEEN'
default, 4 partitions: 200 of 200 keys as in Java
default, 6 partitions: 98 of 200 keys as in Java
default, 8 partitions: 200 of 200 keys as in Java
default, 12 partitions: 98 of 200 keys as in Java
compatible, 4 partitions: 200 of 200 keys as in Java
compatible, 6 partitions: 200 of 200 keys as in Java
compatible, 8 partitions: 200 of 200 keys as in Java
compatible, 12 partitions: 200 of 200 keys as in Java
SEEN
