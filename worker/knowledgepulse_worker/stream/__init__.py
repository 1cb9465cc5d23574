"""Bring the raw topic's records to the lanes; only the module ``faust`` depends on Faust."""
