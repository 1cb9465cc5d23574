"""The parent process, and what it shares with its child: outages, hangs, records that kill."""
