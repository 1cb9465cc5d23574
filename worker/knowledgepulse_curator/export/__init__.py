"""Export scored traces to a dataset folder. Each export plans, writes and publishes the new traces."""
