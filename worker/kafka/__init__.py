"""Kafka's clients: the connection, the topics, reading ranges of offsets, and confirmed publishing."""
