import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.data import Data
from configs.errors import UserError
from tasks.dataset.files import read_questions
from tasks.dataset.question import Question


def write(path: Path, text: str) -> Data:
    path.write_text(text, encoding="utf-8")
    return Data(source=str(path))


def pairs(questions: list[Question]) -> list[tuple[str, str]]:
    return [(question.text, question.gold) for question in questions]


@pytest.fixture(params=["jsonl", "json", "csv", "parquet"])
def two_rows(request: pytest.FixtureRequest, tmp_path: Path) -> Data:
    rows = [{"question": "2+2?", "answer": "4"}, {"question": "3+3?", "answer": "6"}]
    path = tmp_path / f"sums.{request.param}"
    match request.param:
        case "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case "json":
            path.write_text(json.dumps(rows))
        case "csv":
            path.write_text("question,answer\n2+2?,4\n3+3?,6\n")
        case "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
    return Data(source=str(path))


def test_every_format_gives_the_same_questions_in_order(two_rows: Data):
    questions, refused = read_questions(two_rows)
    assert pairs(questions) == [("2+2?", "4"), ("3+3?", "6")]
    assert not refused


def test_columns_can_have_other_names_and_more_may_be_there(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("topic,problem,solution\nsums,2+2?,4\n")
    questions, _ = read_questions(Data(source=str(path), prompt_column="problem", answer_column="solution"))
    assert pairs(questions) == [("2+2?", "4")]


def test_a_missing_column_is_named_with_the_file_and_the_columns_present(two_rows: Data):
    with pytest.raises(UserError, match=r"sums\.\w+: no column 'prompt' \(data.prompt_column\); it has answer, quest"):
        read_questions(two_rows.model_copy(update={"prompt_column": "prompt"}))


def test_a_data_set_is_loaded_by_the_datasets_library_from_the_hub_or_a_folder(two_rows: Data):
    folder = Path(two_rows.source).parent
    questions, _ = read_questions(Data(source=f"hub:{folder}", settings={"split": "train"}))
    assert pairs(questions) == [("2+2?", "4"), ("3+3?", "6")]


@pytest.mark.parametrize("settings", [{"split": "tests"}, {"no_such_option": 1}])
def test_settings_that_a_data_set_refuses_are_named(two_rows: Data, settings: dict):
    with pytest.raises(UserError, match=f"hub:.*{next(iter(settings))}"):
        read_questions(Data(source=f"hub:{Path(two_rows.source).parent}", settings=settings))


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"no such file.*none\.jsonl"):
        read_questions(Data(source=str(tmp_path / "none.jsonl")))


def test_an_unknown_source_is_answered_with_the_known_ones():
    with pytest.raises(UserError, match=r"'arithmetics': give `arithmetic`.*\.jsonl"):
        read_questions(Data(source="arithmetics"))


@pytest.mark.parametrize(("name", "text"), [("a.jsonl", ""), ("a.json", "[]"), ("a.csv", "question,answer\n")])
def test_an_empty_file_is_an_error(tmp_path: Path, name: str, text: str):
    with pytest.raises(UserError, match="holds no rows"):
        read_questions(write(tmp_path / name, text))


def test_rows_without_question_or_answer_are_refused_and_counted(tmp_path: Path):
    rows = [
        {"question": "a", "answer": "1"},
        {"question": None, "answer": "2"},
        {"question": " ", "answer": "3"},
        {"question": "d", "answer": None},
        {"question": "e"},
        {"question": "f", "answer": float("nan")},
    ]
    data = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    questions, refused = read_questions(data)
    assert pairs(questions) == [("a", "1")]
    assert refused == {"no question": 2, "no answer": 3}


def test_a_byte_order_mark_and_blank_lines_do_no_harm_and_a_cut_line_is_named(tmp_path: Path):
    good = '\ufeff{"question": "a", "answer": "1"}\n\n{"question": "b", "answer": "2"}\n'
    questions, _ = read_questions(write(tmp_path / "good.jsonl", good))
    assert pairs(questions) == [("a", "1"), ("b", "2")]
    assert [question.id for question in questions] == ["good.jsonl:1", "good.jsonl:3"]
    with pytest.raises(UserError, match=r"cut\.jsonl:4: not valid JSON"):
        read_questions(write(tmp_path / "cut.jsonl", good + '{"a":2'))


def test_a_csv_with_a_byte_order_mark_quotes_and_blank_lines_is_read(tmp_path: Path):
    data = write(tmp_path / "a.csv", '\ufeffquestion,answer\n"a, b",1\n\nc,2\n')
    assert pairs(read_questions(data)[0]) == [("a, b", "1"), ("c", "2")]


@pytest.mark.parametrize("row", ["only one", "a,1,more", '"never closed,1'])
def test_a_broken_csv_line_is_named(tmp_path: Path, row: str):
    with pytest.raises(UserError, match=r"a\.csv:3: "):
        read_questions(write(tmp_path / "a.csv", f"question,answer\na,1\n{row}\n"))


@pytest.mark.parametrize(("name", "text"), [("a.jsonl", '["a"]'), ("a.json", '[["a"]]')])
def test_a_row_that_is_no_object_is_named(tmp_path: Path, name: str, text: str):
    with pytest.raises(UserError, match=r":1: a row is an object"):
        read_questions(write(tmp_path / name, text))


def test_a_json_file_must_hold_a_list(tmp_path: Path):
    with pytest.raises(UserError, match="list of rows"):
        read_questions(write(tmp_path / "a.json", '{"question": "a", "answer": "1"}'))


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"a\.parquet: not a valid Parquet file"):
        read_questions(write(tmp_path / "a.parquet", "hello"))


@pytest.mark.parametrize(
    ("value", "text"), [(42, "42"), (42.0, "42.0"), (0.1, "0.1"), (1e20, "100000000000000000000"), (-3, "-3")]
)
def test_numbers_become_text_once(tmp_path: Path, value: float, text: str):
    data = write(tmp_path / "a.jsonl", json.dumps({"question": "a", "answer": value}))
    assert pairs(read_questions(data)[0]) == [("a", text)]


def test_numpy_integers_in_parquet_become_text(tmp_path: Path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"question": ["a"], "answer": np.array([42], dtype=np.int64)}), path)
    assert pairs(read_questions(Data(source=str(path)))[0]) == [("a", "42")]


def test_text_is_kept_as_it_is_written(tmp_path: Path):
    data = write(tmp_path / "a.csv", "question,answer\nagent?,007\nnothing?,None\nmissing?,NA\n")
    assert pairs(read_questions(data)[0]) == [("agent?", "007"), ("nothing?", "None"), ("missing?", "NA")]


def test_a_value_that_is_neither_text_nor_number_is_an_error(tmp_path: Path):
    data = write(tmp_path / "a.jsonl", '{"question": [{"role": "user"}], "answer": "1"}')
    with pytest.raises(UserError, match=r"a\.jsonl:1: column 'question' holds a list"):
        read_questions(data)
