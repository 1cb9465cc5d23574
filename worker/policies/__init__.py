"""What policies would do, and have done: compare, tune, rescore, evaluate, explain.

Everything here starts from the dimensions that traces were scored with, so nothing is embedded again.
"""
