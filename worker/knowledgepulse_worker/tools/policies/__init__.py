"""Policy tools: compare, tune, fit, rescore, evaluate, explain.

All of them start from the recorded dimensions of scored traces, so nothing is embedded again.
"""
