"""When a partition counts as stalled."""

from __future__ import annotations

import pytest

from worker.errors import StalledError
from worker.stream.watchdog import INTERVAL, Watchdog


def checks(seconds):
    return range(int(seconds / INTERVAL))


def test_a_partition_that_comes_no_further_while_records_wait_is_stalled():
    watchdog = Watchdog(10, "records wait, and none was finished")
    for second in checks(11):
        watchdog.check({2: second, 3: 41})
    with pytest.raises(StalledError, match=r"partition 3: records wait.* for 10 s \(limits.stall\)"):
        watchdog.check({2: 11, 3: 41})


def test_it_may_stand_still_for_as_long_as_the_limit():
    watchdog = Watchdog(10, "")
    for second in checks(100):
        watchdog.check({3: second // 10})


def test_what_no_longer_waits_starts_anew():
    """After recovery, or when everything was finished for a moment."""
    watchdog = Watchdog(10, "")
    for second in checks(100):
        watchdog.check({} if second % 10 == 0 else {3: 41})
