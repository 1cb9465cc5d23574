"""`make docs`: build the site in build/docs/site."""

from __future__ import annotations

import sys

from generator.build import BuildError, build
from generator.staging import ROOT

try:
    site = build(ROOT / "build/docs")
except BuildError as error:
    sys.exit(str(error))
sys.stdout.write(f"To read the site: python3 -m http.server --directory {site.relative_to(ROOT)}\n")
