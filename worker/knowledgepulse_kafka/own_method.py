"""Change what a method of one client calls, for which aiokafka has no hook."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any


def own_method(method: Callable[..., Any], **names: Any) -> Callable[..., Any]:
    """Return a bound method that looks up these names of its module as given here.

    Other objects of its class, and other programs of the process, keep the module's.
    """
    function: Any = method.__func__  # type: ignore[attr-defined]  # a method has it
    own = FunctionType(
        function.__code__, function.__globals__ | names, function.__name__, function.__defaults__
    )
    own.__kwdefaults__ = function.__kwdefaults__
    return MethodType(own, method.__self__)  # type: ignore[attr-defined]
