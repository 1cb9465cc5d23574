"""From scored traces to a dataset folder: what is new is planned, written and published, in this order."""
