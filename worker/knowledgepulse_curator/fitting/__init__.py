"""Policies and labels: whether a score agrees with them, and the learned values that fit them."""
