"""A record and its bytes: what lanes, tools and the Kafka clients share of one; nothing that runs."""
