from support.lanes import document, make_harness, no_leaks, raw

__all__ = ["document", "make_harness", "no_leaks", "raw"]
