"""What a curator does with scored traces: label, fit and evaluate policies, export datasets, contribute.

It stands above :mod:`knowledgepulse_worker`, which knows none of it but the names of its commands.
"""
