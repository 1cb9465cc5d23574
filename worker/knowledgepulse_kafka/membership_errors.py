"""Explain why the brokers no longer serve a group member."""

from __future__ import annotations

from aiokafka.errors import InconsistentGroupProtocolError, InvalidSessionTimeoutError

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import BrokerError, ClientError, MembershipError
from knowledgepulse_kafka.request_waits import GROUP_IS_FULL, MEMBERSHIP, Waits
from knowledgepulse_kafka.rights import denied_right


def membership_error(error: BaseException, config: Config, waits: Waits) -> ClientError:
    """Return the error to report for an error of a group member.

    Args:
        error: the client's error.
        config: the client's configuration.
        waits: has the errors that the coordinator gave last; the client does not know all of them.
    """
    group = f"{config.prefix}group: {config.group}"
    if isinstance(error, InconsistentGroupProtocolError):
        return MembershipError(f"{group}: another application has members in this group; stop them first")
    if isinstance(error, InvalidSessionTimeoutError):
        return BrokerError(
            f"{config.prefix}session_timeout: the brokers do not accept it; it must be within their "
            "group.min.session.timeout.ms and group.max.session.timeout.ms"
        )
    last = waits.current(MEMBERSHIP)
    if any(wait.error == GROUP_IS_FULL for wait in last):
        return MembershipError(f"{group}: it is full (group.max.size of the brokers)")
    told = "; ".join(map(str, last)) or repr(error)
    return denied_right(error, "Read") or MembershipError(f"{group}: {told}")
