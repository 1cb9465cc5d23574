"""What stands beside a worker in a company's Kafka, run with it: `make check NAME=interoperability`."""
