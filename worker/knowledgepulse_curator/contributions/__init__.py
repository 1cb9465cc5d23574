"""Contributed traces sent to a KnowledgePulse registry, and deleted from it."""
