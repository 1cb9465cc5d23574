"""Sessions: what agents' programs write down of their own runs, or print."""
