"""`make docs`: build the site in build/docs/site. `make tables`: write the documents' generated parts."""

from __future__ import annotations

import sys

from generator.build import BuildError, build
from generator.staging import ROOT, documents

if sys.argv[1:] == ["tables"]:
    from generator.tables import renewed  # which needs the worker, and not only what builds the site

    for path in (ROOT / document for document in documents()):
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
    sys.exit()
try:
    site = build(ROOT / "build/docs")
except BuildError as error:
    sys.exit(str(error))
sys.stdout.write(f"To read the site: python3 -m http.server --directory {site.relative_to(ROOT)}\n")
