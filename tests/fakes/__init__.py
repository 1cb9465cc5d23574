"""Stand-ins for a broker in memory: a group, a reader, a publisher.

The simulator has stand-ins of its own, and the two cannot be one set. Here a test decides what happens next:
which partitions are assigned, which record is confirmed or refused, all on the real event loop. There a
history decides, in virtual time, between hosts that can be cut off, suspended or killed between any two
callbacks. Both pass the contract tests that the real clients pass (``tests/contract``).
"""
