"""A step's scored samples, as an update finds them."""

from pathlib import Path
from typing import Any

from tasks.records.samples import SCORED, write_samples
from tasks.run.directory import Run


def scored(run: Run, step: int) -> Path:
    """Store a batch of two groups of two as the one shard of a step, and return its path."""
    rows: list[dict[str, Any]] = [
        {
            "group": group,
            "prompt_ids": [10 + group, 11],
            "response_ids": [12 + step, 13 + index],
            "logprobs": [-4.0, -4.0],
            "weights_versions": [step - 1, step - 1],
            "finish_reason": "length" if index else "stop",
            "reward": float(index),
            "parts": '{"accuracy": 0.5}' if index else "{}",
        }
        for group in (0, 1)
        for index in (0, 1)
    ]
    path = run.step_file(step, "scored-00.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_samples(path, rows, SCORED)
    return path
