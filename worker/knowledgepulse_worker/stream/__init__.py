"""The raw topic's records to the lanes: source, ledgers, monitor, reload; ``faust`` alone knows Faust."""
