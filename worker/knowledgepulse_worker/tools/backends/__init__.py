"""Backends of traces: read runs from them, and write scores back."""
