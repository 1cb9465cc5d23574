"""The commands of ``kp-worker``, a module each."""
