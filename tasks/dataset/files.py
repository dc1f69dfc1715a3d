"""Questions from tables: local files, and data sets of the hub or on disk through the `datasets` library.

The readers keep every value as the file has it. Type inference, as CSV readers of table libraries do, would turn the
gold `007` into 7 and the answer `None` into nothing.
"""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from configs.data import Data
from configs.errors import UserError
from tasks.dataset.question import Question

Row = dict[str, Any]
NumberedRows = Iterator[tuple[int, Row]]

HUB = "hub:"


def read_questions(data: Data) -> tuple[list[Question], Counter[str]]:
    """Read the table `data.source`: its questions in their order, and how many rows were refused for what.

    Rows without a question or an answer are refused and counted. Ids are `name:number`, the number being the line
    (.jsonl, .csv) or the row (any other), from 1. Numbers become text: `42`, `0.5`.

    Raises:
        UserError: no such file or data set, unknown suffix, a line that can't be read, a column that is missing, no
            rows, or a value that is neither text nor a number.
    """
    path = Path(data.source.removeprefix(HUB))
    rows = list(_read_hub(data) if data.source.startswith(HUB) else _read_file(data))
    if not rows:
        raise UserError(f"{path}: holds no rows")
    _require_columns(path, data, {column for _, row in rows for column in row})

    found, refused = [], Counter[str]()
    for number, row in rows:
        text = _text(row.get(data.prompt_column), path, number, data.prompt_column)
        gold = _text(row.get(data.answer_column), path, number, data.answer_column)
        if text and gold:
            found.append(Question(id=f"{path.name}:{number}", text=text, gold=gold, source=path.name))
        else:
            refused["no question" if not text else "no answer"] += 1
    return found, refused


def _read_file(data: Data) -> NumberedRows:
    path = Path(data.source)
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise UserError(
            f"data.source {data.source!r}: give `arithmetic`, `reasoning_gym:<task>`, `hub:<id>` or a file "
            f"({', '.join(_READERS)})"
        )
    if data.settings:
        raise UserError(f"data.settings: the file {data.source} takes none; they are for generated sources and the hub")
    if not path.is_file():
        raise UserError(f"data.source {data.source}: no such file (looked for {path.absolute()})")
    return reader(path)


def _read_hub(data: Data) -> NumberedRows:
    """Rows of a data set of the hub, or of a folder of data files; `data.settings` go to `datasets.load_dataset`."""
    import datasets

    name = data.source.removeprefix(HUB)
    settings: dict[str, Any] = {"split": "train"} | data.settings
    try:
        rows = datasets.load_dataset(name, **settings)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"data.source {data.source} with {settings}: {type(error).__name__}: {error}") from None
    return enumerate((dict(row) for row in rows), start=1)


def _require_columns(path: Path, data: Data, present: set[str]) -> None:
    for setting, column in (("prompt_column", data.prompt_column), ("answer_column", data.answer_column)):
        if column not in present:
            raise UserError(f"{path}: no column {column!r} (data.{setting}); it has {', '.join(sorted(present))}")


def _text(value: object, path: Path, number: int, column: str) -> str:
    match value:
        case None:
            return ""
        case str():
            return value.strip()
        case bool() | int():
            return str(value)
        case float() if value == value:
            return format(Decimal(repr(value)), "f")
        case float():
            return ""  # NaN is how tables spell "nothing".
        case Decimal():
            return format(value, "f")
    raise UserError(f"{path}:{number}: column {column!r} holds a {type(value).__name__}; text or a number is expected")


def _read_jsonl(path: Path) -> NumberedRows:
    # utf-8-sig drops a byte order mark where there is one.
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, _as_row(_parse_json(line, path, number), path, number)


def _read_json(path: Path) -> NumberedRows:
    rows = _parse_json(path.read_text(encoding="utf-8-sig"), path)
    if not isinstance(rows, list):
        raise UserError(f"{path}: a .json file holds a list of rows; for one row a line use .jsonl")
    for number, row in enumerate(rows, start=1):
        yield number, _as_row(row, path, number)


def _parse_json(text: str, path: Path, line: int | None = None) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{line or error.lineno}: not valid JSON: {error.msg}") from None


def _as_row(value: object, path: Path, number: int) -> Row:
    if not isinstance(value, dict):
        raise UserError(f"{path}:{number}: a row is an object with named columns, not a {type(value).__name__}")
    return value


def _read_csv(path: Path) -> NumberedRows:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, strict=True)
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise UserError(f"{path}:{reader.line_num}: this row and the header differ in length")
                yield reader.line_num, row
        except csv.Error as error:
            raise UserError(f"{path}:{reader.reader.line_num}: not valid CSV: {error}") from None


def _read_parquet(path: Path) -> NumberedRows:
    import datasets
    import pyarrow as pa
    from datasets.exceptions import DatasetGenerationError

    try:
        rows = datasets.Dataset.from_parquet(str(path), keep_in_memory=True)
    except (DatasetGenerationError, pa.ArrowInvalid) as error:
        raise UserError(f"{path}: not a valid Parquet file: {error.__cause__ or error}") from None
    return enumerate((dict(row) for row in rows), start=1)


_READERS: dict[str, Callable[[Path], NumberedRows]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
