"""Programs that stand beside a worker in a company's Kafka, run with it: `make interoperability-check`."""
