"""The worker's topics and the rights that it needs; Kafka's clients are in :mod:`knowledgepulse_kafka`."""
