"""Rows of local files.

These readers keep every value as the file has it and know the line that a row stands in. `datasets` would do neither
for text formats: its type inference turns the gold `007` into 7 and the answer `None` into nothing, and its errors name
no line. Parquet and Arrow carry their types, so `datasets` reads those, a batch at a time.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator
from glob import escape, glob
from pathlib import Path
from typing import Any

from configs.errors import UserError

NumberedRows = Iterator[tuple[int, dict[str, Any]]]

# What `datasets` writes beside the Arrow files of a folder.
_NO_ROWS = {"dataset_info.json", "dataset_dict.json", "state.json"}


def read_files(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read every row of a file, of a folder's files, or of those that a glob matches, in the order of their names.

    Yields:
        Where a row stands, `name:number`, and the row. The number is the line (.jsonl, .csv; that of its last line
        for a row of several) or the row (any other), from 1.

    Raises:
        UserError: no such file, an unknown suffix, or a line that can't be read.
    """
    root, paths = _find(source)
    for path in paths:
        for number, row in _READERS[path.suffix](path):
            yield f"{path.relative_to(root)}:{number}", row


def _find(source: str) -> tuple[Path, list[Path]]:
    """Return the folder that names are relative to, and the files of a source."""
    path = Path(source)
    if path.is_dir():
        root, candidates = path, path.rglob("*")
    elif "*" in source or "?" in source:
        candidates = [Path(name) for name in glob(source, recursive=True)]
        root = Path(*(part for part in path.parts[: _first_pattern(path)]))
    elif path.suffix not in _READERS:
        raise UserError(
            f"data.source {source!r}: give `arithmetic`, `reasoning_gym:<task>`, `hub:<id>`, a folder, or a file "
            f"({', '.join(_READERS)})"
        )
    elif not path.is_file():
        raise UserError(f"data.source {source}: no such file (looked for {path.absolute()})")
    else:
        return path.parent, [path]
    paths = sorted(file for file in candidates if file.suffix in _READERS and _is_meant(file.relative_to(root)))
    if not paths:
        raise UserError(f"data.source {source}: no file there ends in {', '.join(_READERS)}")
    return root, paths


def _is_meant(file: Path) -> bool:
    """Tell whether a file was put there to be read: hidden ones are copies and caches of other programs."""
    return file.name not in _NO_ROWS and not any(part.startswith(".") for part in file.parts)


def _first_pattern(path: Path) -> int:
    return next(index for index, part in enumerate(path.parts) if "*" in part or "?" in part)


def _read_jsonl(path: Path) -> NumberedRows:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            text = _decode(line, path, number)
            if text.strip():
                yield number, _as_row(_parse_json(text, path, number), path, number)


def _read_json(path: Path) -> NumberedRows:
    rows = _parse_json(_decode(path.read_bytes(), path), path)
    if not isinstance(rows, list):
        raise UserError(f"{path}: a .json file holds a list of rows; for one row a line use .jsonl")
    for number, row in enumerate(rows, start=1):
        yield number, _as_row(row, path, number)


def _decode(content: bytes, path: Path, line: int | None = None) -> str:
    """Return text. A byte order mark at the beginning is dropped."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = line or content.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}:{number}: not UTF-8 (byte 0x{content[error.start]:02x}): save the file in that encoding"
        ) from None


def _parse_json(text: str, path: Path, line: int | None = None) -> object:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{line or error.lineno}: not valid JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}{f':{line}' if line else ''}: can't be read as JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object, and refuse one that says a key twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return made


def _as_row(value: object, path: Path, number: int) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{path}:{number}: a row is an object with named columns, not a {type(value).__name__}")
    return value


def _read_csv(path: Path) -> NumberedRows:
    reader = csv.DictReader(io.StringIO(_decode(path.read_bytes(), path), newline=""), strict=True)
    try:
        header = reader.fieldnames or []
        if twice := sorted({name for name in header if header.count(name) > 1}):
            raise UserError(f"{path}:1: the header has {', '.join(twice)} twice")
        for row in reader:
            if None in row or None in row.values():
                raise UserError(f"{path}:{reader.line_num}: this row and the header differ in length")
            yield reader.line_num, row
    except csv.Error as error:
        raise UserError(f"{path}:{reader.reader.line_num}: not valid CSV: {error}") from None


def _read_columnar(path: Path) -> NumberedRows:
    import datasets
    import pyarrow as pa
    from datasets.exceptions import DatasetGenerationError

    kind, number = path.suffix.removeprefix("."), 0
    try:
        # Streaming copies nothing into the library's cache.
        rows = datasets.load_dataset(kind, data_files=escape(str(path)), split="train", streaming=True)
        for number, row in enumerate(rows, start=1):
            yield number, dict(row)
    except (DatasetGenerationError, pa.ArrowException, OSError, ValueError) as error:
        where = f"{path}:{number + 1}" if number else f"{path}"
        raise UserError(f"{where}: not a valid {kind.capitalize()} file: {error.__cause__ or error}") from None


_READERS: dict[str, Callable[[Path], NumberedRows]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_columnar,
    ".arrow": _read_columnar,
}
