"""Authentication of Kafka clients with TLS and OAuth tokens."""
