"""What tools share and no worker needs: scored records, keys, the departure rule, a port for metrics."""
