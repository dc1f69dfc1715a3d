"""Makes a deployed flow renew its lease every six seconds. Python imports a module of this name when it starts."""

import sys

if "prefect.engine" in sys.orig_argv:
    from prefect.concurrency import _leases

    _leases._RENEWAL_FRACTION = 0.02
