"""Helpers that tests, chaos and bench share.

They start workers whose settings are in files. The developer's own settings in the environment would override
these files and send the workers to another cluster.
"""

import os

from knowledgepulse_worker.settings import ENV_PREFIX

for _name in [name for name in os.environ if name.upper().startswith(ENV_PREFIX)]:
    del os.environ[_name]
