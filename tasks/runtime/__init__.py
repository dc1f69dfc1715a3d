"""What every stage stands on: the cluster, the ledger, the dispatch of tasks, the tracker.

Ray reads how clusters authenticate when it is imported, so that is settled here, before any module imports it: a local
cluster is closed to other users of the machine by a token of its own, which is kept out of the home directory. A
cluster that RAY_ADDRESS names has its own settings.
"""

import os
import secrets
import sys

if "ray" not in sys.modules and "RAY_ADDRESS" not in os.environ and "RAY_AUTH_MODE" not in os.environ:
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
