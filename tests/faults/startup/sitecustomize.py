"""A disk that is slow or full for a while, for every Python process of a fault test.

Python imports a module of this name when it starts; the harness puts it on PYTHONPATH. While a file `slow disk` lies in
RL_POST_HOME, each sync takes a second; while a file `full disk` does, it finds no room.
"""

import errno
import os
import sys
import time
from typing import Any, cast

HOME = os.environ.get("RL_POST_HOME", "")
SECONDS = 1.0  # That a sync takes on the slow disk.
_sync = os.fsync


def sync(descriptor: int) -> None:
    """Do as `os.fsync` on a disk in trouble."""
    if os.path.exists(f"{HOME}/full disk"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if os.path.exists(f"{HOME}/slow disk"):
        time.sleep(SECONDS)
    _sync(descriptor)


os.fsync = sync
# transformers imports scikit-learn where there is one, and needs it for nothing here: two seconds of each process.
cast(dict[str, Any], sys.modules)["sklearn"] = None
