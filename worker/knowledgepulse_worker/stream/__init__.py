"""Bring the raw topic's records to the tasks; only the module ``faust`` depends on Faust."""
