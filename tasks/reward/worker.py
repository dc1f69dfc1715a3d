"""The killable side of scoring: a nursery process that imports once and forks workers.

`python -m tasks.reward.worker DESCRIPTOR`, where DESCRIPTOR is that of the socket to its owner.

The nursery gets one line of JSON by its socket: `{"parts": […], "memory_mb": N}`. It imports what the parts need and
answers `{"ready": true}` or `{"error": "…"}`. Each file descriptor that it gets afterwards is the socket of a new
worker. When its own socket closes, because its owner ended by whatever means, it kills its whole process group.

A worker says `{"pid": N}`, then answers lines `{"part": index, "answered": {…}}` with `{"value": number or null}`,
`{"out_of_memory": true}` or `{"error": "…"}`, and ends with its socket. Its owner kills it when it takes too long.

A fork of a process that has imported already makes a killed worker cheap to replace. The owner can't be forked: it has
threads. multiprocessing's fork server, which pebble's pool uses, would import the owner's main module, here Ray's, and
a hanging worker would outlive its killed owner.
"""

import ctypes
import gc
import json
import os
import resource
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import Any

from pydantic import TypeAdapter

from configs.reward import Part
from tasks.records.question import Question
from tasks.reward.kinds import KILLABLE, import_for
from tasks.reward.outcome import Answered

_SHORT = 2000  # Characters of an error's text: its end tells what happened.
_PR_SET_PDEATHSIG = 1


def main(descriptor: int) -> None:
    """Import, then fork a worker for every descriptor that comes in."""
    with socket.socket(fileno=descriptor) as owner:
        settings = json.loads(owner.makefile("rb").readline())
        try:
            parts = [TypeAdapter(Part).validate_python(part) for part in settings["parts"]]
            for part in parts:
                import_for(part)
        except Exception as error:
            owner.sendall(_line({"error": f"{type(error).__name__}: {error}"}))
            return
        owner.sendall(_line({"ready": True}))
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps dead workers
        gc.freeze()  # garbage collection in the workers would copy shared pages
        while True:
            _, descriptors, _, _ = socket.recv_fds(owner, 1, 1)
            if not descriptors:
                os.killpg(0, signal.SIGKILL)
            if os.fork() == 0:
                owner.close()
                _serve(socket.socket(fileno=descriptors[0]), parts, settings["memory_mb"])
                os._exit(0)
            os.close(descriptors[0])


def _serve(owner: socket.socket, parts: list[Part], memory_mb: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _end_with_nursery()
    _limit_memory(memory_mb)
    with owner, owner.makefile("rb") as requests, suppress(ConnectionError):
        owner.sendall(_line({"pid": os.getpid()}))
        for request in requests:
            owner.sendall(_line(_answer(json.loads(request), parts)))


def _answer(request: dict[str, Any], parts: list[Part]) -> dict[str, Any]:
    part, fields = parts[request["part"]], request["answered"]
    answered = Answered(**fields | {"question": Question(**fields["question"])})
    try:
        value = KILLABLE[part.kind](part, answered)
        return {"value": None if value is None else float(value)}
    except MemoryError:
        return {"out_of_memory": True}
    except Exception:
        return {"error": traceback.format_exc()[-_SHORT:]}


def _end_with_nursery() -> None:
    """Die when the nursery does: Ray kills a dying worker's children with SIGKILL, but not their children."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _limit_memory(megabytes: int) -> None:
    """Let allocations beyond what the nursery has mapped, plus the limit, fail with MemoryError."""
    if sys.platform == "linux":
        with open("/proc/self/statm") as statm:
            mapped = int(statm.read().split()[0]) * resource.getpagesize()
        limit = mapped + megabytes * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


if __name__ == "__main__":
    main(int(sys.argv[1]))
