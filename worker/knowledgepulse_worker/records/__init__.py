"""Records and their bytes, as lanes, tools and Kafka clients share them; nothing here runs on its own."""
