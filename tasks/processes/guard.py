"""Run a command so that nothing of it survives its owner: `python -m tasks.processes.guard GRACE -- COMMAND…`.

The owner holds the other end of the guard's standard input and writes nothing. When that end closes, because the owner
died by whatever means, the guard ends the command's whole process group: SIGTERM, GRACE seconds, SIGKILL. SIGTERM and
SIGINT do the same, and when the command itself ends, the rest of its group is ended too.

The guard is two processes. The front one, the owner's child, passes on signals and the exit code. The watcher does the
work in a session of its own: Ray kills a dying worker's children with SIGKILL, which no process can pass on.
"""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType
from typing import IO

POLL = 0.05  # Seconds between looks at a group that is ending.
LIFELINE = 0  # Standard input.
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def start(command: list[str], environment: Mapping[str, str], log: IO[bytes], grace: float) -> subprocess.Popen[bytes]:
    """Run a command under a guard, which ends it when the returned process's standard input closes.

    Args:
        command: What to run.
        environment: Variables beyond those of this process.
        log: Where its output goes.
        grace: Seconds between SIGTERM and SIGKILL.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "tasks.processes.guard", f"{grace:g}", "--", *command],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env={**os.environ, **environment},
        start_new_session=True,
    )


def main(arguments: list[str]) -> int:
    """Run the command after `--` and return its exit code, 128 + the signal's number if a signal ended it."""
    if len(arguments) < 3 or arguments[1] != "--":
        sys.exit("usage: python -m tasks.processes.guard GRACE -- COMMAND [ARGUMENT …]")
    watcher = os.fork()
    if watcher:
        return _relay(watcher)
    os.setsid()
    return _watch(arguments[2:], float(arguments[0]))


def _relay(watcher: int) -> int:
    def pass_on(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(watcher, number)

    for number in ENDING_SIGNALS:
        signal.signal(number, pass_on)
    _, status = os.waitpid(watcher, 0)
    return _exit_code(os.waitstatus_to_exitcode(status))


def _watch(command: list[str], grace: float) -> int:
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (*ENDING_SIGNALS, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)  # wakes the selector, which decides

    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    with selectors.DefaultSelector() as selector:
        for descriptor in (LIFELINE, wake_read):
            selector.register(descriptor, selectors.EVENT_READ)
        while child.poll() is None and not _must_end(selector, wake_read):
            pass
    _end_group(child, grace)
    return _exit_code(child.wait())


def _must_end(selector: selectors.BaseSelector, wake_read: int) -> bool:
    for key, _ in selector.select():
        data = os.read(key.fd, 4096)
        if key.fd == LIFELINE and not data:
            return True
        if key.fd == wake_read and any(number in ENDING_SIGNALS for number in data):
            return True
    return False


def _end_group(child: subprocess.Popen[bytes], grace: float) -> None:
    deadline = time.monotonic() + grace
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            time.sleep(POLL)
            child.poll()  # a dead child counts as part of its group until it is reaped
            os.killpg(child.pid, 0)
        os.killpg(child.pid, signal.SIGKILL)


def _exit_code(returned: int) -> int:
    return returned if returned >= 0 else 128 - returned


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
