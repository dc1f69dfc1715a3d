"""A server that only shows a run may be away. What waiting for it may cost."""

import time
from collections.abc import Callable


class Sparing:
    """Calls of a server that may be away, which cost a run at most a tenth of its time.

    After a call that failed, the next is not made before nine times as long has passed as it took: a server that
    refuses connections is asked again within seconds, one that never answers after minutes.
    """

    def __init__(self) -> None:
        self._rest_until = 0.0
        self._away = False

    def try_to(self, call: Callable[[], object], failed: Callable[[Exception], object], now: bool = False) -> bool:
        """Call, and tell whether that went well.

        Args:
            call: What asks the server. Whatever it raises, training goes on.
            failed: Told of the error, of the first one if several follow each other.
            now: Whether to call also while the server is spared.
        """
        begun = time.monotonic()
        if begun < self._rest_until and not now:
            return False
        try:
            call()
        except Exception as error:
            ended = time.monotonic()
            self._rest_until = ended + 9 * (ended - begun)
            if not self._away:
                failed(error)
            self._away = True
            return False
        self._away, self._rest_until = False, 0.0
        return True
