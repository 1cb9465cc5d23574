"""Promises: how much may pass so that at least a part of it is worth keeping."""
