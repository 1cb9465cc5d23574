"""The only package that uses internals of the Kafka client."""
