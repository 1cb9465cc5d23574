package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

var servers = os.Getenv("KAFKA")

func main() {
	map[string]func(){
		"read":    func() { read(os.Getenv("GROUP")) },
		"bounded": func() { read("bounded-" + os.Getenv("GROUP")) },
		"publish": publish,
	}[os.Getenv("TASK")]()
}

func read(group string) {
	bounded := os.Getenv("TASK") == "bounded"
	consumer := must(kafka.NewConsumer(&kafka.ConfigMap{
		"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", "enable.partition.eof": bounded,
	}))
	must(0, consumer.Subscribe(os.Getenv("TOPIC"), nil))
	for {
		switch event := consumer.Poll(1000).(type) {
		case *kafka.Message:
			fmt.Println(string(event.Value))
		case kafka.PartitionEOF:
			return
		}
	}
}

func publish() {
	config := kafka.ConfigMap{"bootstrap.servers": servers, "go.delivery.reports": false}
	if os.Getenv("SETTING") != "" {
		config["partitioner"] = "murmur2_random"
	}
	producer := must(kafka.NewProducer(&config))
	for _, topic := range strings.Split(os.Getenv("TOPICS"), ",") {
		place := kafka.TopicPartition{Topic: &topic, Partition: kafka.PartitionAny}
		for range 3 {
			for _, key := range strings.Split(os.Getenv("KEYS"), ",") {
				message := &kafka.Message{TopicPartition: place, Key: []byte(key), Value: []byte("value")}
				must(0, producer.Produce(message, nil))
			}
		}
	}
	for producer.Flush(1000) > 0 {
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
