package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

var (
	brokers = []string{os.Getenv("KAFKA")}
	topic   = os.Getenv("TOPIC")
	set     = os.Getenv("SETTING") != ""
)

func main() {
	switch os.Getenv("TASK") {
	case "read":
		read(reader(os.Getenv("GROUP")), func(int64) bool { return false })
	case "bounded":
		connection := must(kafka.DialLeader(context.Background(), "tcp", brokers[0], topic, 0))
		end := must(connection.ReadLastOffset())
		read(reader(""), func(offset int64) bool { return offset+1 >= end })
	default:
		publish()
	}
}

func reader(group string) *kafka.Reader {
	config := kafka.ReaderConfig{Brokers: brokers, Topic: topic, GroupID: group, StartOffset: kafka.FirstOffset, MaxWait: time.Second}
	if set {
		config.IsolationLevel = kafka.ReadCommitted
	}
	return kafka.NewReader(config)
}

func read(reader *kafka.Reader, ended func(int64) bool) {
	for {
		message := must(reader.ReadMessage(context.Background()))
		if len(message.Value) > 6 {
			fmt.Println(string(message.Value))
		} else {
			fmt.Println(`{"record": "markers"}`)
		}
		if ended(message.Offset) {
			return
		}
	}
}

func publish() {
	for _, topic := range strings.Split(os.Getenv("TOPICS"), ",") {
		writer := &kafka.Writer{Addr: kafka.TCP(brokers...), Topic: topic}
		if set {
			writer.Balancer = kafka.Murmur2Balancer{}
		}
		for range 3 {
			var messages []kafka.Message
			for _, key := range strings.Split(os.Getenv("KEYS"), ",") {
				messages = append(messages, kafka.Message{Key: []byte(key), Value: []byte("value")})
			}
			must(0, writer.WriteMessages(context.Background(), messages...))
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
