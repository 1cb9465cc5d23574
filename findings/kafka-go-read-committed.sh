#!/usr/bin/env bash
# Expected: a kafka-go Reader with ReadCommitted delivers the records of committed transactions, and no control record.
# Seen: the level only ends the fetch at the last stable offset. Aborted records are delivered, and so is the marker of
#   each transaction, as a message with a value of six bytes.
# Versions: github.com/segmentio/kafka-go v0.4.51, broker 4.4.0, 2026-11-28
# So: docs/consumers/consume.md advises other clients in Go.
set -euo pipefail
source "$(dirname "$0")/support/broker.sh"
transactions results

cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{os.Args[1]}, Topic: "results", MaxWait: 500 * time.Millisecond,
		IsolationLevel: kafka.ReadCommitted,
	})
	deadline, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	for {
		message, err := reader.ReadMessage(deadline)
		if err != nil {
			return
		}
		fmt.Printf("%d %q %q\n", message.Offset, message.Key, message.Value)
	}
}
GO
quietly go mod init finding
quietly go get github.com/segmentio/kafka-go@v0.4.51
quietly go build -o reader .
./reader "$bootstrap" | tee output
diff - output <<'SEEN'
0 "key" "committed"
1 "key" "committed"
2 "key" "committed"
3 "\x00\x00\x00\x01" "\x00\x00\x00\x00\x00\x00"
4 "key" "aborted"
5 "key" "aborted"
6 "\x00\x00\x00\x00" "\x00\x00\x00\x00\x00\x00"
SEEN
