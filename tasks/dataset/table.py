"""Questions from tables: local files, and data sets of the hub through the `datasets` library."""

import json
import random
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import httpx

from configs.data import HUB, READER_COLUMNS, Source
from configs.errors import UserError
from tasks.dataset.files import read_files
from tasks.dataset.readers import READERS, Parsed, Refused, WrongType, to_earlier_and_text
from tasks.records.question import Finding, Question

T = TypeVar("T")

SHUFFLE_BUFFER = 10_000
"""Rows among which the next of `data.rows` is drawn; a source that is larger is not shuffled as a whole."""


def read_questions(source: Source, seed: int) -> tuple[list[Question], list[Finding]]:
    """Read a table: its questions in their order, and the rows that were refused.

    Rows without a question or an answer are refused and told of, wherever they are: a prompt never holds the text
    `None`. What shows that the whole table is not what the recipe says is an error: a line that can't be parsed, a
    missing column, or a value of a wrong type. Ids are the source's label and `file:number`, the number being the line
    or row; for a source of one file that is `file:number` alone. Numbers become text: `42`, `0.5`.

    Args:
        source: Where and how to read.
        seed: Draws the rows where `source.rows` is given.

    Raises:
        UserError: names the file and the line, and what is expected.
    """
    numbered = _read_hub(source) if source.source.startswith(HUB) else _read_local(source)
    rows = numbered if source.rows is None else take_shuffled(numbered, source.rows, seed)
    read, needed = READERS[source.reader], READER_COLUMNS[source.reader]
    named: dict[str, str] = {name: source.columns.get(name, name) for name in needed}
    present: set[str] = set()
    found, refused = [], []
    for place, row in rows:
        present |= row.keys()
        id = place if place.startswith(f"{source.label}:") else f"{source.label}/{place}"
        try:
            parsed = read({name: row.get(column) for name, column in named.items()})
        except Refused as reason:
            refused.append(Finding(str(reason), source.label, id, str(row)))
        except WrongType as wrong:
            raise UserError(
                f"data.source {source.source}, {place}: column {named.get(wrong.column, wrong.column)!r} holds a "
                f"{type(wrong.value).__name__}; the reader {source.reader} expects {wrong.expected}"
            ) from None
        except Exception as error:  # Whatever a layout makes of somebody's row, it costs that row alone.
            reason = f"the reader {source.reader} can't take the row"
            refused.append(Finding(reason, source.label, id, f"{type(error).__name__}: {error}: {row}"))
        else:
            found.append(_question(id, parsed, source.label))
    _check_columns(source, named, present)
    return found, refused


def take_shuffled(rows: Iterable[T], count: int, seed: int, buffer: int = SHUFFLE_BUFFER) -> list[T]:
    """Take the first `count` rows of the stream as a shuffle buffer gives it; no more than `count + buffer` are read.

    The same as `datasets.IterableDataset.shuffle(seed, buffer).take(count)` does, but for any rows, and each keeps its
    number.
    """
    rng = random.Random(seed)
    held: list[T] = []
    taken: list[T] = []
    for row in rows:
        if len(held) < buffer:
            held.append(row)
            continue
        place = rng.randrange(buffer)
        taken.append(held[place])
        held[place] = row
        if len(taken) == count:
            return taken
    rng.shuffle(held)
    return (taken + held)[:count]


def _question(id: str, parsed: Parsed, label: str) -> Question:
    earlier, text = to_earlier_and_text(parsed.prompt)
    return Question(id, text, parsed.gold, label, json.dumps(parsed.metadata or {}), earlier)


def _read_local(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    if source.settings:
        raise UserError(
            f"data.settings: the file {source.source} takes none; they are for generated sources and the hub"
        )
    return read_files(source.source)


def _read_hub(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a data set of the hub, or of a folder in its form; `settings` go to `datasets.load_dataset`."""
    import datasets

    settings: dict[str, Any] = {"split": "train"} | source.settings
    try:
        rows = datasets.load_dataset(source.source.removeprefix(HUB), **settings)
        for number, row in enumerate(rows, start=1):
            yield f"{source.origin}:{number}", dict(row)
    except (OSError, ValueError, TypeError, httpx.HTTPError) as error:
        raise UserError(f"data.source {source.source} with {settings}: {type(error).__name__}: {error}") from None


def _check_columns(source: Source, named: dict[str, str], present: set[str]) -> None:
    if not present:
        raise UserError(f"{source.source}: holds no rows")
    for name, column in named.items():
        if column not in present:
            raise UserError(
                f"{source.source}: no column {column!r} (columns.{name} of the reader {source.reader}); "
                f"it has {', '.join(sorted(present))}"
            )
