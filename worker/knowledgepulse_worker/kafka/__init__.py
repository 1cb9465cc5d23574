"""Kafka clients: connection, topic administration, offset-range reads and confirmed publishing."""
