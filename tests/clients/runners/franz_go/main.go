package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var topic = os.Getenv("TOPIC")

func main() {
	switch os.Getenv("TASK") {
	case "read":
		read(client(kgo.ConsumerGroup(os.Getenv("GROUP"))), func(int64) bool { return false })
	case "bounded":
		client := client()
		end := end(client)
		read(client, func(offset int64) bool { return offset+1 >= end })
	default:
		publish()
	}
}

func client(options ...kgo.Opt) *kgo.Client {
	options = append(options, kgo.SeedBrokers(os.Getenv("KAFKA")), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if os.Getenv("SETTING") != "" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return must(kgo.NewClient(options...))
}

func read(client *kgo.Client, ended func(int64) bool) {
	for {
		for records := client.PollFetches(context.Background()).RecordIter(); !records.Done(); {
			record := records.Next()
			fmt.Println(string(record.Value))
			if ended(record.Offset) {
				return
			}
		}
	}
}

// The end as a reader of the same isolation level is told it.
func end(client *kgo.Client) int64 {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	if os.Getenv("SETTING") != "" {
		request.IsolationLevel = 1
	}
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Timestamp = -1
	requested := kmsg.NewListOffsetsRequestTopic()
	requested.Topic, requested.Partitions = topic, append(requested.Partitions, partition)
	request.Topics = append(request.Topics, requested)
	return must(request.RequestWith(context.Background(), client)).Topics[0].Partitions[0].Offset
}

func publish() {
	client := must(kgo.NewClient(kgo.SeedBrokers(os.Getenv("KAFKA"))))
	for _, topic := range strings.Split(os.Getenv("TOPICS"), ",") {
		for range 3 {
			for _, key := range strings.Split(os.Getenv("KEYS"), ",") {
				record := &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte("value")}
				must(0, client.ProduceSync(context.Background(), record).FirstErr())
			}
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
