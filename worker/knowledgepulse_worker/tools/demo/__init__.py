"""`kp-worker demo` and its Kafka brokers."""
