"""The prepared folder: train.arrow, eval.arrow, demonstrations.arrow (empty without a cold start), left_out.jsonl,
receipt.json and report.json.

The tables are Arrow IPC files. Prompts have the columns of a question and of `opened` (strings) and prompt_ids (int32
lists);
demonstrations have prompt_ids and response_ids. left_out.jsonl has every row that was left out: its reason, source, id
(file and line) and a detail, of which the report shows the first few.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyarrow import feather

from configs.errors import UserError
from tasks.dataset.report import Report
from tasks.records.question import Finding, Prompt, Question
from trainer.files import written_at_once

LEFT_OUT = "left_out.jsonl"
Demonstration = tuple[list[int], list[int]]
"""(prompt ids, response ids with the EOS)."""

_IDS = pa.list_(pa.int32())
_PROMPTS = pa.schema(
    [(field.name, pa.string()) for field in fields(Question)] + [("prompt_ids", _IDS), ("opened", pa.string())]
)
_DEMONSTRATIONS = pa.schema([("prompt_ids", _IDS), ("response_ids", _IDS)])


@dataclass(frozen=True)
class PreparedDataset:
    """What preparation made: the folder, the digest of what it is made of and of what was made, rows, and rows left out
    by reason."""

    path: str
    digest: str
    train_rows: int
    eval_rows: int
    dropped: dict[str, int]


def write(
    receipt: PreparedDataset,
    report: Report,
    train: Sequence[Prompt],
    held_out: Sequence[Prompt],
    demos: Sequence[Demonstration],
    left_out: Sequence[Finding],
) -> None:
    """Write the folder `receipt.path` whole or not at all.

    Raises:
        UserError: two questions have the same id, by which pass rates and evaluations tell them apart.
    """
    ids = Counter(prompt.question.id for prompt in [*train, *held_out])
    if twice := [id for id, count in ids.items() if count > 1]:
        raise UserError(f"{len(twice)} ids are of several questions, {twice[0]} for one: give each source a `name`")
    with written_at_once(Path(receipt.path)) as folder:
        _write_table(folder / "train.arrow", [_to_row(prompt) for prompt in train], _PROMPTS)
        _write_table(folder / "eval.arrow", [_to_row(prompt) for prompt in held_out], _PROMPTS)
        rows = [{"prompt_ids": prompt_ids, "response_ids": response_ids} for prompt_ids, response_ids in demos]
        _write_table(folder / "demonstrations.arrow", rows, _DEMONSTRATIONS)
        (folder / LEFT_OUT).write_text("".join(json.dumps(asdict(finding)) + "\n" for finding in left_out))
        (folder / "receipt.json").write_text(json.dumps(asdict(receipt), indent=2))
        (folder / "report.json").write_text(json.dumps(asdict(report), indent=2))


def read_receipt(path: str | Path) -> PreparedDataset:
    """Read the receipt of a prepared folder, wherever it lies now."""
    return PreparedDataset(**json.loads((Path(path) / "receipt.json").read_text()) | {"path": str(path)})


def read_report(path: str | Path) -> Report:
    """Read what the preparation of a folder found."""
    return Report(**json.loads((Path(path) / "report.json").read_text()))


def read_prompts(path: str | Path, split: Literal["train", "eval"]) -> list[Prompt]:
    """Read the prompts of a prepared folder, in their fixed order."""
    rows = feather.read_table(Path(path) / f"{split}.arrow").to_pylist()
    # A folder of an earlier version has no `opened`.
    return [Prompt(ids=row.pop("prompt_ids"), opened=row.pop("opened", ""), question=Question(**row)) for row in rows]


def read_demonstrations(path: str | Path) -> list[Demonstration]:
    """Read the cold start's demonstrations of a prepared folder; empty where it was prepared without a cold start."""
    table = feather.read_table(Path(path) / "demonstrations.arrow")
    return list(zip(table["prompt_ids"].to_pylist(), table["response_ids"].to_pylist(), strict=True))


def _to_row(prompt: Prompt) -> dict[str, Any]:
    return asdict(prompt.question) | {"prompt_ids": prompt.ids, "opened": prompt.opened}


def _write_table(path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    # Uncompressed files can be mapped into memory as they are.
    feather.write_feather(pa.Table.from_pylist(rows, schema=schema), str(path), compression="uncompressed")
