"""Faust alone: the app, its consumer, the watchdog, and the run of a worker's process."""
