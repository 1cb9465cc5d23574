"""All that touches the insides of the Kafka client."""
