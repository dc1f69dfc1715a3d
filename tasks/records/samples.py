"""Samples on disk: one row is one sample, in Parquet, the same columns from rollout to update."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from trainer.files import whole_file

SampleRow = dict[str, Any]
Status = Literal["right", "wrong", "truncated", "unscorable", "timeout", "error"]
"""What scoring said of a sample: see `tasks.reward.outcome.Score`."""
STATUSES: tuple[Status, ...] = get_args(Status)
JUDGED = ("right", "wrong", "truncated")
"""The statuses that are a verdict on the answer. All accuracies are over these samples alone."""
UNFINISHED = "abort"
"""The finish reason of a sample that was not begun, or not finished."""
GIVEN_UP = "error"
"""The finish reason of a sample that no engine could make, and its status: no tokens, no reward, no part in updates."""

ROLLOUT = pa.schema(
    [
        ("step", pa.int32()),
        ("group", pa.int32()),  # position of the prompt in the step
        ("index", pa.int32()),  # position of the sample in the group
        ("prompt_id", pa.string()),
        ("prompt_ids", pa.list_(pa.int32())),
        ("response_ids", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float32())),  # behaviour log-probs, one a response token
        ("weights_versions", pa.list_(pa.int32())),  # one a response token
        ("finish_reason", pa.string()),
        ("seed", pa.int64()),
        ("text", pa.string()),
        ("question", pa.string()),
        ("source", pa.string()),
        ("gold", pa.string()),
        ("metadata", pa.string()),
        ("opened", pa.string()),  # the tag that the prompt leaves open, see `tasks.records.thinking`; null in old runs
    ]
)
SCORED = (
    ROLLOUT.append(pa.field("reward", pa.float32()))  # null: unscorable, not part of the update
    .append(pa.field("parts", pa.string()))  # JSON: each part of the reward
    .append(pa.field("status", pa.string()))
)


def write_samples(path: Path, rows: list[SampleRow], schema: pa.Schema) -> None:
    """Write samples, whole or not at all."""
    with whole_file(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), temporary)


def raw_accuracy(row: SampleRow) -> float | None:
    """Return a scored sample's accuracy before weights and shaping; None where it is not known."""
    return json.loads(row["parts"]).get("accuracy")


def is_right(row: Mapping[str, Any]) -> bool | None:
    """Return a scored sample's verdict; None where there is none, which is no wrong answer.

    There is none of a question that can't be checked, of a part of the reward that failed (a judge that is down), and
    of a checker that ran into its limit. The reward of a timeout is decided all the same: that part of it is 0, so that
    a policy does not learn to hang the checker.
    """
    return row["status"] == "right" if row["status"] in JUDGED else None


def status_counts(name: str, rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return how many scored samples have each status, those that none has too, as metrics `<name>/<status>`."""
    counts = Counter(row["status"] for row in rows)
    return {f"{name}/{status}": float(counts[status]) for status in STATUSES}


def read_samples(paths: Iterable[Path | str]) -> list[SampleRow]:
    """Read samples from several files, in the order given."""
    return [row for path in paths for row in pq.read_table(path).to_pylist()]
