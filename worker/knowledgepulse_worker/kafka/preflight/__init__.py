"""Checks before the first record: whether the brokers can be reached and grant the rights needed."""
