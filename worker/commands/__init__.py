"""The subcommands of ``kp-worker``, one module each."""
