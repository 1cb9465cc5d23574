"""One partition's pipeline, from a raw record to its confirmed output, without Faust or a Kafka client.

``lane`` says the order of its steps, and why; ``lanes`` holds the lanes by partition.
"""
