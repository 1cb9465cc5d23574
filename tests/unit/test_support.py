"""What the tests themselves rely on."""

import os
import subprocess
import sys

from support import streams


def test_settings_of_the_developers_do_not_reach_the_tests():
    """Workers of tests would read and write another cluster's topics."""
    environment = streams.tests_environment() | {
        "KP_KAFKA__GROUP": "production",
        "kp_web__port": "1",
        "OTHER": "1",
    }
    code = "import os, support; print([name for name in os.environ if name.upper().startswith('KP_')])"

    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"
    assert not [name for name in os.environ if name.upper().startswith("KP_")]
