"""What `kp-worker demo` needs around the worker itself."""
