"""`make docs`: build the site of this version. `make tables`: write the documents' generated parts."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from generator.build import BuildError, build
from generator.llms import NoSentenceError
from generator.staging import ROOT, documents
from generator.versions import add_version

if sys.argv[1:] == ["tables"]:
    from generator import alerts  # which needs the worker, and not only what builds the site
    from generator.tables import renewed

    for path in (ROOT / document for document in documents()):
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
    alerts.RULES.write_text(alerts.renewed(alerts.RULES.read_text(encoding="utf-8")), encoding="utf-8")
    sys.exit()
site = Path(sys.argv[1])
version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
try:
    add_version(build(ROOT / "build/docs"), site, version)
except (BuildError, NoSentenceError) as error:
    sys.exit(str(error))
sys.stdout.write(f"To read the site: python3 -m http.server --directory {site}\n")
