"""The former place of :mod:`knowledgepulse_convert`, which works until release 0.6.0."""

import warnings

from knowledgepulse_convert import *  # noqa: F403 - all of its public names

warnings.warn(
    "import knowledgepulse_convert; knowledgepulse_schemas.convert will be removed in 0.6.0",
    DeprecationWarning,
    stacklevel=2,
)
