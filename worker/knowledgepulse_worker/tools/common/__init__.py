"""What tools share and no worker needs: scored records, keys, departure, a port for metrics."""
