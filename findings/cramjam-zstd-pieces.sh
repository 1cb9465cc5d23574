#!/usr/bin/env bash
# Expected: `cramjam.zstd.Decompressor`, which its help calls a streaming decompressor, takes a frame in pieces.
# Seen: it refuses the first piece of a whole frame as an incomplete one. Only `decompress_into` a file unpacks without
#   holding the result, and all at once; through a pipe, whoever reads decides how much is unpacked.
# Versions: cramjam 2.14.0, 2026-11-28
# So: convert unpacks zstd through a pipe (knowledgepulse_worker/tools/convert/unpacking.py).
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
packages cramjam==2.14.0

cat >pieces.py <<'PY'
import os
import tempfile
import threading

import cramjam

text = b"a line\n" * 1_000_000
frame = bytes(cramjam.zstd.compress(text))
try:
    cramjam.zstd.Decompressor().decompress(frame[:100])
    print("a piece: taken")
except OSError as error:
    print(f"a piece: {error}")

with tempfile.TemporaryFile() as packed:
    packed.write(frame)
    packed.flush()
    reading, writing = os.pipe()

    def unpack():
        target = cramjam.File(f"/dev/fd/{writing}", read=False, write=True)
        cramjam.zstd.decompress_into(cramjam.File(f"/dev/fd/{packed.fileno()}"), target)
        os.close(writing)

    threading.Thread(target=unpack).start()
    with open(reading, "rb") as unpacked:
        print(f"through a pipe: {'the same text' if unpacked.read() == text else 'another text'}")
PY
venv/bin/python pieces.py | tee output
diff - output <<'SEEN'
a piece: incomplete frame
through a pipe: the same text
SEEN
