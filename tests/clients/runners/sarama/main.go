package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/IBM/sarama"
)

var (
	brokers = []string{os.Getenv("KAFKA")}
	topic   = os.Getenv("TOPIC")
	config  = sarama.NewConfig()
)

func main() {
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Producer.Return.Successes = true
	if os.Getenv("SETTING") != "" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
		config.Producer.Partitioner = sarama.NewMurmur2Partitioner
	}
	map[string]func(){"read": read, "bounded": bounded, "publish": publish}[os.Getenv("TASK")]()
}

func read() {
	group := must(sarama.NewConsumerGroup(brokers, os.Getenv("GROUP"), config))
	for {
		must(0, group.Consume(context.Background(), []string{topic}, handler{}))
	}
}

type handler struct{}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		fmt.Println(string(message.Value))
		session.MarkMessage(message, "")
	}
	return nil
}

func bounded() {
	client := must(sarama.NewClient(brokers, config))
	end := must(client.GetOffset(topic, 0, sarama.OffsetNewest))
	consumer := must(must(sarama.NewConsumerFromClient(client)).ConsumePartition(topic, 0, sarama.OffsetOldest))
	for message := range consumer.Messages() {
		fmt.Println(string(message.Value))
		if message.Offset+1 >= end {
			return
		}
	}
}

func publish() {
	producer := must(sarama.NewSyncProducer(brokers, config))
	for _, topic := range strings.Split(os.Getenv("TOPICS"), ",") {
		for range 3 {
			for _, key := range strings.Split(os.Getenv("KEYS"), ",") {
				message := &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(key), Value: sarama.StringEncoder("value")}
				_, _, err := producer.SendMessage(message)
				must(0, err)
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
