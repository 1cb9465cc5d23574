"""What operators see of a worker: metrics, recent records, the status page, spans."""
