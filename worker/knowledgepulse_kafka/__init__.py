"""What aiokafka lacks for processing records exactly once; independent of the worker.

README.md beside this file lists it by KIP. This package is the only one that imports aiokafka.
"""

CLIENT = "aiokafka"
"""The client's distribution, and the name of its loggers."""
