"""The calling process's limit on descriptors is raised, and never lowered."""

import subprocess
import sys

import pytest

from knowledgepulse_worker.process.descriptors import WANTED_DESCRIPTORS

RAISE = """
import resource, sys
from knowledgepulse_worker.process.descriptors import raise_descriptor_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
raise_descriptor_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "raised"), [(256, 1024, min(1024, WANTED_DESCRIPTORS)), (301, 301, 301)]
)
def test_the_soft_limit_is_raised_as_far_as_the_hard_one_allows(soft, hard, raised):
    command = [sys.executable, "-c", RAISE, str(soft), str(hard)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.split() == [str(raised), str(hard)]
