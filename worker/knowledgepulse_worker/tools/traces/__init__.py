"""`kp-worker traces`: list scored traces, and explain the score of one."""
