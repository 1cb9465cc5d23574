"""What all commands share: their groups, `--config` and safe text."""
