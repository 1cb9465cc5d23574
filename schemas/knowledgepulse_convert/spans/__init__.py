"""Spans: the tracers' exports, their dialects, and the tree of calls that they make."""
