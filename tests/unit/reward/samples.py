"""Functions of a user, for the kind `python`: good, bad and worse ones."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from tasks.records.question import Question


def by_length(text: str, question: Question) -> float:
    return np.float64(min(1.0, len(text) / 10))


def as_told(text: str, question: Question) -> Any:
    """Do what the response says."""
    match text:
        case "raise":
            raise ValueError("boom")
        case "exit":
            os._exit(3)
        case "leave":
            raise SystemExit(1)
        case "abort":
            os.abort()
        case "fill":
            return len([bytearray(2**20) for _ in range(2**20)])
        case _ if text.startswith("await "):
            while not Path(text.removeprefix("await ")).exists():
                time.sleep(0.01)
            return 1.0
        case _ if text.startswith("make "):
            Path(text.removeprefix("make ")).touch()
            return 1.0
        case "hang":
            while True:
                pass
        case "sleep":
            time.sleep(1000)
        case "none":
            return None
        case "nan":
            return float("nan")
        case "words":
            return "much"
        case "pid":
            return 1 / os.getpid()
        case _:
            return float(text)
