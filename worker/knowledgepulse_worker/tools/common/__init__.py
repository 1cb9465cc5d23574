"""What tools share and no worker needs: scored records, keys, the egress rule, a port for metrics."""
