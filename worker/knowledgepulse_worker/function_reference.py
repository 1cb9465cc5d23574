"""Functions that a setting names as ``module:function``."""

from __future__ import annotations

import importlib
from typing import Any

from knowledgepulse_worker.errors import SettingsError

FUNCTION_REFERENCE = r"^[\w.]+:[\w.]+$"


def import_function(setting: str, name: str) -> Any:
    """Import the function that a setting names.

    Raises:
        SettingsError: the module cannot be imported or has no such function.
    """
    module, _, path = name.partition(":")
    try:
        function: Any = importlib.import_module(module)
        for attribute in path.split("."):
            function = getattr(function, attribute)
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"{setting}: {name}: {error}") from error
    except Exception as error:  # the user's module may raise anything
        raise SettingsError(f"{setting}: {name}: {type(error).__name__} on import") from error
    if not callable(function):
        raise SettingsError(f"{setting}: {name}: is not a function")
    return function
