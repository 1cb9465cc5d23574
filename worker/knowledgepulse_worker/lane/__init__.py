"""A partition's pipeline, from a raw record to its committed output, without Faust or a Kafka client.

The module ``lane`` explains the order of the steps; ``lanes`` holds the lanes by partition.
"""
