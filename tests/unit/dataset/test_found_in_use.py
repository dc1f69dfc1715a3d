"""U20 to U25 of what this product itself once got wrong with data, and others of each kind."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.data import Data, Source
from configs.errors import UserError
from configs.loader import load_recipe
from tasks.dataset import store
from tasks.dataset.contamination import gives_answer_away
from tasks.dataset.prompts import encode_prompts
from tasks.dataset.report import build_report
from tasks.dataset.sources import choose_questions, read_sources
from tasks.dataset.table import read_questions
from tasks.records.question import Prompt, Question


def rows(path: Path, *pairs: tuple[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"question": text, "answer": gold}) + "\n" for text, gold in pairs))


def ids(*sources: dict[str, Any]) -> list[str]:
    data = Data.model_validate({"sources": sources, "train_size": None, "eval_size": 1})
    return [question.id for candidates in read_sources(data)[0] for question in candidates.questions]


# U20: questions of the same name


FOLDERS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    "two folders": lambda root: [{"source": str(root / "gsm")}, {"source": str(root / "mth")}],
    "a folder and a file of it": lambda root: [
        {"source": str(root / "gsm")},
        {"source": str(root / "gsm" / "train.jsonl")},
    ],
    "a glob and a folder": lambda root: [{"source": str(root / "g*" / "train.jsonl")}, {"source": str(root / "mth")}],
    "the same file by two names": lambda root: [
        {"source": str(root / "gsm" / "train.jsonl"), "name": "one"},
        {"source": str(root / "gsm" / "train.jsonl"), "name": "two"},
    ],
}


@pytest.mark.parametrize("sources", FOLDERS.values(), ids=FOLDERS)
def test_u20_ids_of_two_sources_differ(tmp_path: Path, sources: Callable[[Path], list[dict[str, Any]]]) -> None:
    rows(tmp_path / "gsm" / "train.jsonl", ("2+2?", "4"), ("3+3?", "6"))
    rows(tmp_path / "mth" / "train.jsonl", ("4+4?", "8"), ("5+5?", "10"))

    found = ids(*sources(tmp_path))

    assert len(found) == len(set(found)) == 4


def test_u20_two_folders_are_told_apart_by_their_labels(tmp_path: Path) -> None:
    rows(tmp_path / "gsm" / "train.jsonl", ("2+2?", "4"))
    rows(tmp_path / "mth" / "train.jsonl", ("4+4?", "8"))

    assert ids(*FOLDERS["two folders"](tmp_path)) == ["gsm/train.jsonl:1", "mth/train.jsonl:1"]
    assert ids({"source": str(tmp_path / "gsm" / "train.jsonl")}) == ["train.jsonl:1"]


@pytest.mark.parametrize("held_out", [0, 1])
def test_u20_the_store_refuses_two_questions_with_one_id(tmp_path: Path, held_out: int) -> None:
    twins = [Prompt(Question("a:1", text, "4", "a"), [1]) for text in ("2+2?", "3+1?")]
    train, evaluation = twins[: 2 - held_out], twins[2 - held_out :]
    receipt = store.PreparedDataset(str(tmp_path / "made"), "d", len(train), len(evaluation), {})

    with pytest.raises(UserError, match="1 ids are of several questions, a:1 for one"):
        store.write(receipt, build_report({}, [], [], [], []), train, evaluation, [], [])
    assert not (tmp_path / "made").exists()


# U21: files that can't be read


GOOD = b'{"question": "2+2?", "answer": "4"}\n'
UNREADABLE = {
    "Latin-1, second line": (
        "a.jsonl",
        GOOD + '{"question": "caf\xe9?", "answer": "1"}\n'.encode("latin-1"),
        r":2: not UTF-8 \(byte 0xe9\)",
    ),
    "UTF-16": ("a.jsonl", GOOD.decode().encode("utf-16"), r":1: not UTF-8 \(byte 0xff\)"),
    "a list in Latin-1": ("a.json", b'[\n{"question": "caf\xe9?", "answer": "1"}]', r":2: not UTF-8"),
    "a table in Latin-1": ("a.csv", b"question,answer\n2+2?,4\ncaf\xe9?,1\n", r":3: not UTF-8"),
    "a number of 5,000 digits": (
        "a.jsonl",
        GOOD + b'{"question": "q", "answer": ' + b"1" * 5000 + b"}\n",
        r":2: can't be read as JSON",
    ),
    "brackets without end": ("a.jsonl", GOOD + b"[" * 100_000 + b"\n", r":2: (can't be read|not valid)"),
    "a key that is there twice": (
        "a.jsonl",
        GOOD + b'{"question": "q", "answer": "1", "answer": "2"}\n',
        r":2: .*'answer' is there twice",
    ),
    "a column that is there twice": (
        "a.csv",
        b"question,answer,answer\n2+2?,4,5\n",
        r":1: the header has answer twice",
    ),
    "a table that is none": ("a.parquet", b"PAR1 and nothing else PAR1", r"not a valid Parquet file"),
}


@pytest.mark.parametrize(("name", "content", "said"), UNREADABLE.values(), ids=UNREADABLE)
def test_u21_a_file_that_cannot_be_read_is_named_with_the_line(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(UserError, match=said) as refused:
        read_questions(Source(source=str(tmp_path / name)), seed=0)
    assert str(tmp_path / name) in str(refused.value)


def test_u21_text_of_a_parquet_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    column = pa.array([b"2+2?", b"caf\xe9"], pa.binary()).view(pa.binary()).cast(pa.binary())
    bad = pa.StringArray.from_buffers(2, column.buffers()[1], column.buffers()[2])
    pq.write_table(pa.table({"question": bad, "answer": ["4", "5"]}), tmp_path / "a.parquet")

    with pytest.raises(UserError, match=r"a\.parquet"):
        read_questions(Source(source=str(tmp_path / "a.parquet")), seed=0)


ODD_ROWS = {
    "half of a surrogate pair": ("plain", {"question": "\ud83d", "answer": "1"}, "text that is not valid Unicode"),
    "choices without their texts": (
        "multiple_choice",
        {"question": "q", "choices": {"label": ["A"]}, "answer": "A"},
        "the reader multiple_choice can't take the row",
    ),
    "labels that are no list": (
        "multiple_choice",
        {"question": "q", "choices": {"text": ["a", "b"], "label": 3}, "answer": "A"},
        "the reader multiple_choice can't take the row",
    ),
}


@pytest.mark.parametrize(("reader", "row", "reason"), ODD_ROWS.values(), ids=ODD_ROWS)
def test_u21_a_row_that_cannot_be_taken_is_counted_with_its_line(
    tmp_path: Path, reader: Any, row: dict[str, Any], reason: str
) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")

    questions, (finding,) = read_questions(Source(source=str(tmp_path / "a.jsonl"), reader=reader), seed=0)

    assert questions == []
    assert (finding.reason, finding.id) == (reason, "a.jsonl:1")


@pytest.mark.parametrize(
    "template", ["{{ messages[0].content.nothing.at_all }}", "{{ 1 // (messages[0].content | length - 5) }}"]
)
def test_u21_a_template_that_fails_names_the_question(tokenizer: Any, template: str) -> None:
    tokenizer.chat_template = template
    questions = [Question("a.jsonl:7", "four?", "4", "a.jsonl")]

    with pytest.raises(UserError, match=r"a\.jsonl:7: the model's chat template refuses"):
        encode_prompts(tokenizer, questions, None)


# U22: hidden folders


@pytest.mark.parametrize(
    "hidden", [".ipynb_checkpoints/a.jsonl", "sub/.cache/a.jsonl", "._a.jsonl", ".git/x/y/a.jsonl"]
)
@pytest.mark.parametrize("pattern", ["", "**/*.jsonl"])
def test_u22_hidden_files_of_a_folder_are_left_out(tmp_path: Path, hidden: str, pattern: str) -> None:
    rows(tmp_path / hidden, ("2+2?", "5"))
    rows(tmp_path / "a.jsonl", ("2+2?", "4"))

    questions, _ = read_questions(Source(source=str(tmp_path / pattern)), seed=0)

    assert [question.gold for question in questions] == ["4"]


def test_u22_a_hidden_file_or_folder_that_is_named_itself_is_read(tmp_path: Path) -> None:
    rows(tmp_path / ".private" / "a.jsonl", ("2+2?", "4"))

    assert len(read_questions(Source(source=str(tmp_path / ".private")), seed=0)[0]) == 1
    assert len(read_questions(Source(source=str(tmp_path / ".private" / "a.jsonl")), seed=0)[0]) == 1


# U23: keys said twice


TWICE = {
    "a section": (
        "rollout: {shards: 1}\nsteps: 3\nrollout: {shards: 2}\n",
        "rollout is said twice, in line 1 and in line 3",
    ),
    "a setting": ("rollout:\n  shards: 1\n  shards: 2\n", "shards is said twice, in line 2 and in line 3"),
    "in a mapping in braces": ("data: {seed: 1, seed: 2}\n", "seed is said twice, in line 1 and in line 1"),
    "in a scale": ("scales:\n  a: {gpus: 0}\n  a: {gpus: 1}\n", "a is said twice, in line 2 and in line 3"),
    "quoted": ("steps: 1\n'steps': 2\n", "steps is said twice"),
}


@pytest.mark.parametrize(("text", "said"), TWICE.values(), ids=TWICE)
def test_u23_a_key_that_is_said_twice_is_refused_with_its_lines(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "r.yaml").write_text(text)

    with pytest.raises(UserError, match=rf"r\.yaml: .*{said}"):
        load_recipe(str(tmp_path / "r.yaml"))


def test_u23_what_a_merge_brings_may_be_said_again(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("rollout: &r {shards: 1}\nscales: {a: {rollout: {<<: *r, shards: 2}}}\n")

    assert load_recipe(str(tmp_path / "r.yaml")).rollout.shards == 2


def test_u23_a_merge_of_what_was_merged_brings_the_latest_value(tmp_path: Path) -> None:
    # One after the other, 1 in the first and 2 in the second: PyYAML alone gives the third the value 1.
    (tmp_path / "r.yaml").write_text(
        "rollout: &one {shards: 1}\n"
        "scales:\n"
        "  a: {gpus: 1, rollout: &two {<<: *one, shards: 2}}\n"
        "  b: {gpus: 0, rollout: {<<: *two}}\n"
    )

    assert load_recipe(str(tmp_path / "r.yaml"), ["scale=b"]).rollout.shards == 2


def test_u23_a_key_that_is_no_text_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("steps: 1\n? [1, 2]\n: 3\n")

    with pytest.raises(UserError, match=r"r\.yaml: .*the key in line 2 is no plain text"):
        load_recipe(str(tmp_path / "r.yaml"))


def test_u23_overrides_are_looked_at_too() -> None:
    with pytest.raises(UserError, match="not valid YAML"):
        load_recipe("r1", ["data={seed: 1, seed: 2}"])


# U24: golds that a reader rewrites escape the leak check


@pytest.mark.parametrize(
    "text",
    [
        "He saw 15,000 birds. How many?",
        "He saw 15{,}000 birds. How many?",
        r"He saw $15\,000$ birds. How many?",
        "He saw 15 000 birds. How many?",
        "He saw 15\u202f000 birds. How many?",
        "He saw 15000 birds. How many?",
    ],
)
def test_u24_a_gold_is_found_in_the_question_however_it_is_written(text: str) -> None:
    assert gives_answer_away(Question("a:1", text, "15000", "a"))
    assert gives_answer_away(Question("a:1", text, "15,000", "a"))


@pytest.mark.parametrize("text", ["He saw 15, 000 birds.", "He saw 1,150,000 birds.", "He saw 15,0001 birds."])
def test_u24_another_number_is_not_taken_for_it(text: str) -> None:
    assert not gives_answer_away(Question("a:1", text, "15000", "a"))


def test_u24_through_the_reader_that_rewrites(tmp_path: Path) -> None:
    rows(tmp_path / "a.jsonl", ("Is it 15,000 or more?", "So it is #### 15,000"), ("2+2?", "#### 4"))
    data = Data(source=str(tmp_path / "a.jsonl"), reader="gsm8k", train_size=None, eval_size=1)

    found = choose_questions(data, *read_sources(data))

    assert [q.gold for q in found.train + found.eval if gives_answer_away(q)] == ["15000"]
