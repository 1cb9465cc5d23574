"""`kp-worker score`: score files without a broker."""
