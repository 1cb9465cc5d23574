"""Benchmarks: trajectories and logs of evaluations, most with a verdict."""
