"""What people and dashboards see of the worker."""
