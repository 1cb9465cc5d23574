"""In-memory fakes of a broker's clients: a group member, a reader and a publisher.

The simulator needs its own fakes. Here a test decides on the real event loop which partitions are assigned
and which record is confirmed or rejected. In the simulator, a history decides in virtual time, among hosts
that can be cut off, suspended or killed between any two callbacks. Both sets pass the same contract tests as
the real clients (``tests/contract``).
"""
