import itertools
import json
from collections import Counter
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from configs.data import Source
from configs.errors import UserError
from tasks.dataset.table import read_questions, take_shuffled
from tasks.records.question import Finding, Question


def write(path: Path, text: str) -> Source:
    path.write_text(text, encoding="utf-8")
    return Source(source=str(path))


def read(source: Source) -> tuple[list[Question], Counter[str]]:
    questions, refused = read_questions(source, seed=0)
    return questions, Counter(finding.reason for finding in refused)


def pairs(questions: list[Question]) -> list[tuple[str, str]]:
    return [(question.text, question.gold) for question in questions]


@pytest.fixture(params=["jsonl", "json", "csv", "parquet"])
def two_rows(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
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
    return Source(source=str(path))


def test_every_format_gives_the_same_questions_in_order(two_rows: Source):
    questions, refused = read(two_rows)
    assert pairs(questions) == [("2+2?", "4"), ("3+3?", "6")]
    assert not refused


def test_columns_can_have_other_names_and_more_may_be_there(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("topic,problem,solution\nsums,2+2?,4\n")
    questions, _ = read(Source(source=str(path), columns={"question": "problem", "answer": "solution"}))
    assert pairs(questions) == [("2+2?", "4")]


def test_a_missing_column_is_named_with_the_file_and_the_columns_present(two_rows: Source):
    with pytest.raises(UserError, match=r"sums\.\w+: no column 'prompt' \(columns\.question .*it has answer, quest"):
        read(two_rows.model_copy(update={"columns": {"question": "prompt"}}))


def test_a_data_set_is_loaded_by_the_datasets_library_from_the_hub_or_a_folder(two_rows: Source):
    folder = Path(two_rows.source).parent
    questions, _ = read(Source(source=f"hub:{folder}", settings={"split": "train"}))
    assert pairs(questions) == [("2+2?", "4"), ("3+3?", "6")]


@pytest.mark.parametrize("settings", [{"split": "tests"}, {"no_such_option": 1}])
def test_settings_that_a_data_set_refuses_are_named(two_rows: Source, settings: dict):
    with pytest.raises(UserError, match=f"hub:.*{next(iter(settings))}"):
        read(Source(source=f"hub:{Path(two_rows.source).parent}", settings=settings))


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"no such file.*none\.jsonl"):
        read(Source(source=str(tmp_path / "none.jsonl")))


def test_an_unknown_source_is_answered_with_the_known_ones():
    with pytest.raises(UserError, match=r"'arithmetics': give `arithmetic`.*\.jsonl"):
        read(Source(source="arithmetics"))


@pytest.mark.parametrize(("name", "text"), [("a.jsonl", ""), ("a.json", "[]"), ("a.csv", "question,answer\n")])
def test_an_empty_file_is_an_error(tmp_path: Path, name: str, text: str):
    with pytest.raises(UserError, match="holds no rows"):
        read(write(tmp_path / name, text))


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
    questions, refused = read(data)
    assert pairs(questions) == [("a", "1")]
    assert refused == {"no question": 2, "no answer": 3}


def test_a_byte_order_mark_and_blank_lines_do_no_harm_and_a_cut_line_is_named(tmp_path: Path):
    good = '\ufeff{"question": "a", "answer": "1"}\n\n{"question": "b", "answer": "2"}\n'
    questions, _ = read(write(tmp_path / "good.jsonl", good))
    assert pairs(questions) == [("a", "1"), ("b", "2")]
    assert [question.id for question in questions] == ["good.jsonl:1", "good.jsonl:3"]
    with pytest.raises(UserError, match=r"cut\.jsonl:4: not valid JSON"):
        read(write(tmp_path / "cut.jsonl", good + '{"a":2'))


def test_a_csv_with_a_byte_order_mark_quotes_and_blank_lines_is_read(tmp_path: Path):
    data = write(tmp_path / "a.csv", '\ufeffquestion,answer\n"a, b",1\n\nc,2\n')
    assert pairs(read(data)[0]) == [("a, b", "1"), ("c", "2")]


@pytest.mark.parametrize("row", ["only one", "a,1,more", '"never closed,1'])
def test_a_broken_csv_line_is_named(tmp_path: Path, row: str):
    with pytest.raises(UserError, match=r"a\.csv:3: "):
        read(write(tmp_path / "a.csv", f"question,answer\na,1\n{row}\n"))


@pytest.mark.parametrize(("name", "text"), [("a.jsonl", '["a"]'), ("a.json", '[["a"]]')])
def test_a_row_that_is_no_object_is_named(tmp_path: Path, name: str, text: str):
    with pytest.raises(UserError, match=r":1: a row is an object"):
        read(write(tmp_path / name, text))


def test_a_json_file_must_hold_a_list(tmp_path: Path):
    with pytest.raises(UserError, match="list of rows"):
        read(write(tmp_path / "a.json", '{"question": "a", "answer": "1"}'))


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"a\.parquet: not a valid Parquet file"):
        read(write(tmp_path / "a.parquet", "hello"))


@pytest.mark.parametrize(
    ("value", "text"), [(42, "42"), (42.0, "42.0"), (0.1, "0.1"), (1e20, "100000000000000000000"), (-3, "-3")]
)
def test_numbers_become_text_once(tmp_path: Path, value: float, text: str):
    data = write(tmp_path / "a.jsonl", json.dumps({"question": "a", "answer": value}))
    assert pairs(read(data)[0]) == [("a", text)]


def test_numpy_integers_in_parquet_become_text(tmp_path: Path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"question": ["a"], "answer": np.array([42], dtype=np.int64)}), path)
    assert pairs(read(Source(source=str(path)))[0]) == [("a", "42")]


def test_text_is_kept_as_it_is_written(tmp_path: Path):
    data = write(tmp_path / "a.csv", "question,answer\nagent?,007\nnothing?,None\nmissing?,NA\n")
    assert pairs(read(data)[0]) == [("agent?", "007"), ("nothing?", "None"), ("missing?", "NA")]


def test_a_value_that_is_neither_text_nor_number_is_an_error(tmp_path: Path):
    data = write(tmp_path / "a.jsonl", '{"question": [{"role": "user"}], "answer": "1"}')
    with pytest.raises(UserError, match=r"a\.jsonl:1: column 'question' holds a list"):
        read(data)


def ids(questions: list[Question]) -> list[str]:
    return [question.id for question in questions]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "sums"
    (folder / "more").mkdir(parents=True)
    (folder / "b.jsonl").write_text('\n{"question": "3+3?", "answer": "6"}\n')
    (folder / "a.csv").write_text("question,answer\n2+2?,4\n")
    (folder / "more" / "c.json").write_text('[{"question": "4+4?", "answer": "8"}]')
    (folder / "notes.txt").write_text("not data")
    return folder


def test_a_folder_is_read_file_by_file_in_the_order_of_names(folder: Path):
    questions, _ = read(Source(source=str(folder)))
    assert ids(questions) == ["sums/a.csv:2", "sums/b.jsonl:2", "sums/more/c.json:1"]


def test_a_glob_reads_the_files_that_it_matches(folder: Path):
    assert ids(read(Source(source=f"{folder}/*.jsonl"))[0]) == ["*.jsonl/b.jsonl:2"]
    assert ids(read(Source(source=f"{folder}/**/*.json*"))[0]) == ["*.json*/b.jsonl:2", "*.json*/more/c.json:1"]


@pytest.mark.parametrize("pattern", ["*.parquet", "*.txt"])
def test_a_glob_that_matches_no_data_is_named(folder: Path, pattern: str):
    with pytest.raises(UserError, match=r"no file there ends in \.jsonl"):
        read(Source(source=f"{folder}/{pattern}"))


def test_a_bad_line_of_a_folder_is_named_with_its_file(folder: Path):
    (folder / "more" / "d.jsonl").write_text('{"question": "q"')
    with pytest.raises(UserError, match=r"more/d\.jsonl:1: not valid JSON"):
        read(Source(source=str(folder)))


def test_arrow_files_of_both_formats_are_read(tmp_path: Path):
    table = pa.table({"question": ["2+2?"], "answer": [4]})
    feather.write_feather(table, str(tmp_path / "file.arrow"), compression="uncompressed")
    with pa.ipc.new_stream(str(tmp_path / "stream.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert pairs(read(Source(source=str(tmp_path)))[0]) == [("2+2?", "4")] * 2


def test_a_data_set_saved_to_disk_is_read_as_a_folder(tmp_path: Path):
    datasets.Dataset.from_dict({"question": ["2+2?"], "answer": ["4"]}).save_to_disk(tmp_path / "saved")
    assert pairs(read(Source(source=str(tmp_path / "saved")))[0]) == [("2+2?", "4")]


def test_a_source_with_a_name_puts_it_before_its_ids(folder: Path):
    [question] = read(Source(source=f"{folder}/a.csv", name="easy"))[0]
    assert (question.id, question.source) == ("easy/a.csv:2", "easy")


def test_refused_rows_are_named_by_file_and_line(tmp_path: Path):
    write(tmp_path / "a.jsonl", '{"question": "a", "answer": 1}\n\n{"question": null, "answer": 2}\n')
    _, refused = read_questions(Source(source=str(tmp_path / "a.jsonl")), seed=0)
    assert refused == [Finding("no question", "a.jsonl", "a.jsonl:3", "{'question': None, 'answer': 2}")]


def numbered(path: Path, count: int) -> str:
    path.write_text("".join(json.dumps({"question": f"q{i}", "answer": "1"}) + "\n" for i in range(count)))
    return str(path)


def test_rows_takes_so_many_and_the_seed_decides_which(tmp_path: Path):
    source = Source(source=numbered(tmp_path / "a.jsonl", 50), rows=5)
    drawn = [ids(read_questions(source, seed)[0]) for seed in (0, 0, 1)]
    assert len(set(drawn[0])) == 5
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_stream_of_a_data_set_gives_so_many_rows_with_their_numbers(tmp_path: Path):
    numbered(tmp_path / "a.jsonl", 50)
    source = Source(source=f"hub:{tmp_path}", settings={"streaming": True}, rows=5)
    questions, _ = read_questions(source, seed=3)
    assert len(questions) == 5 and questions == read_questions(source, seed=3)[0]
    # Row 1 holds q0.
    assert all(question.id.endswith(f"/train:{int(question.text[1:]) + 1}") for question in questions)


def test_an_endless_stream_is_read_only_as_far_as_the_buffer_needs():
    read_so_far = itertools.count()
    taken = take_shuffled(read_so_far, 20, seed=0, buffer=100)
    assert len(set(taken)) == 20 and max(taken) < 120
    assert next(read_so_far) == 120
    assert taken != sorted(taken)


def test_fewer_rows_than_asked_for_are_all_taken():
    assert sorted(take_shuffled(range(3), 5, seed=0)) == [0, 1, 2]
