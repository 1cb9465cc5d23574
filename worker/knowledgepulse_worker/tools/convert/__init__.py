"""File conversion for `kp-worker convert` and `kp-worker publish --from`."""
