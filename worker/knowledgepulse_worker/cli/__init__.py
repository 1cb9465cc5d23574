"""``kp-worker``: the table of commands, and the commands that are no tool's."""
