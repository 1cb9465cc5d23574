"""`kp-worker convert` and `kp-worker publish --from`: files of other formats as traces."""
