"""The form of requests that aiokafka lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from aiokafka.errors import IncompatibleBrokerVersion


class OwnRequest:
    """Makes a ``RequestStruct`` of aiokafka a request in a single version.

    aiokafka's own ``Request`` builds the structure of the newest version that the broker knows.

    Attributes:
        NEEDS: what the version needs, for the error message.
    """

    API_KEY: ClassVar[int]
    API_VERSION: ClassVar[int]
    NEEDS: ClassVar[str]

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Self:
        """Return the structure to send.

        Args:
            versions: the oldest and the newest version that the broker knows, by API key.

        Raises:
            IncompatibleBrokerVersion: the broker does not know this version.
        """
        oldest, newest = versions.get(self.API_KEY, (0, -1))
        if not oldest <= self.API_VERSION <= newest:
            raise IncompatibleBrokerVersion(self.NEEDS)
        return self
