"""The watchdog's notion of a stalled partition."""

from __future__ import annotations

import pytest

from knowledgepulse_worker.errors import StalledError
from knowledgepulse_worker.stream.watchdog import INTERVAL, Watchdog


def checks(seconds):
    return range(int(seconds / INTERVAL))


def test_a_partition_without_progress_while_records_wait_is_stalled():
    watchdog = Watchdog(10, "records are waiting, but none was finished")
    for second in checks(11):
        watchdog.check({2: second, 3: 41})
    with pytest.raises(StalledError, match=r"partition 3: records are waiting.* for 10 s \(limits.stall\)"):
        watchdog.check({2: 11, 3: 41})


def test_a_partition_may_make_no_progress_up_to_the_limit():
    watchdog = Watchdog(10, "")
    for second in checks(100):
        watchdog.check({3: second // 10})


def test_the_wait_is_reset_when_no_record_waits():
    """As after recovery, or when everything is briefly finished."""
    watchdog = Watchdog(10, "")
    for second in checks(100):
        watchdog.check({} if second % 10 == 0 else {3: 41})
