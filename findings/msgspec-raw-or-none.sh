#!/usr/bin/env bash
# Expected: a member of the type "Raw or None" takes any JSON value, as Raw alone does.
# Seen: msgspec builds a decoder for the type without a word, and it takes null alone, as if Raw were not named.
# Versions: msgspec 0.22.0, 2026-11-28
# So: an optional input of a step is read as Raw, and a null is told apart afterwards (knowledgepulse_worker/records/valid_traces.py).
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
packages msgspec==0.22.0

cat >raw.py <<'PY'
from msgspec import Raw, Struct, ValidationError
from msgspec.json import Decoder


class Optional(Struct):
    input: Raw | None = None


class Plain(Struct):
    input: Raw = Raw(b"null")


for document in (b'{"input": {"a": 1}}', b'{"input": null}'):
    for kind in (Optional, Plain):
        try:
            read = bytes(Decoder(kind).decode(document).input or b"None").decode()
        except ValidationError as error:
            read = str(error)
        print(f"{'Raw | None' if kind is Optional else 'Raw'}, {document.decode()}: {read}")
PY
venv/bin/python raw.py | tee output
diff - output <<'SEEN'
Raw | None, {"input": {"a": 1}}: Expected `null`, got `object` - at `$.input`
Raw, {"input": {"a": 1}}: {"a": 1}
Raw | None, {"input": null}: None
Raw, {"input": null}: null
SEEN
