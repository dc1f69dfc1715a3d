"""What every stage stands on: the cluster, the ledger, the dispatch of tasks, the tracker.

Ray reads some settings when it is imported, so those of a local cluster are made here, before any module imports it. A
cluster that RAY_ADDRESS names has its own.
"""

import os
import secrets
import sys

if "ray" not in sys.modules and "RAY_ADDRESS" not in os.environ and "RAY_AUTH_MODE" not in os.environ:
    # Closed to other users of the machine by a token of its own, which is kept out of the home directory.
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    # Ray ends workers beyond one a core that were idle for a second. A new one takes seconds to import Prefect, which
    # more than doubled the time of a step here.
    os.environ.setdefault("RAY_num_workers_soft_limit", "16")
