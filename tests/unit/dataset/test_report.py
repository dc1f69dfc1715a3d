from tasks.dataset.report import build_report, markdown
from tasks.records.question import Finding, Question


def prompt(number: int, tokens: int, source: str = "a") -> tuple[Question, list[int]]:
    return Question(f"{source}:{number}", "q", "1", source), [0] * tokens


TRAIN = [prompt(i, tokens) for i, tokens in enumerate([3, 5, 7, 9, 100])] + [prompt(9, 4, "b")]
DROPPED = [
    *(Finding("too long", "a", f"a.jsonl:{i}", "x" * 500) for i in range(5)),
    Finding("no answer", "b", "a.jsonl:9", "`|`\n"),
]


def test_what_came_of_each_source_is_counted():
    report = build_report({"a": 13, "b": 2, "c": 1}, TRAIN, [prompt(20, 4)], DROPPED, [])
    assert report.sources == {
        "a": {"rows": 13, "training": 5, "evaluation": 1, "left out": 5, "not needed": 2},
        "b": {"rows": 2, "training": 1, "evaluation": 0, "left out": 1, "not needed": 0},
        "c": {"rows": 1, "training": 0, "evaluation": 0, "left out": 0, "not needed": 1},
    }


def test_lengths_are_those_of_prompts_that_there_are():
    report = build_report({"a": 5}, TRAIN[:5], [], [], [])
    assert report.prompt_tokens["training"] == {"shortest": 3, "median": 7, "95 %": 100, "longest": 100}
    assert set(report.prompt_tokens["evaluation"].values()) == {0}


def test_every_drop_is_counted_and_the_first_are_shown_by_file_and_line():
    report = build_report({"a": 5}, TRAIN, [], DROPPED, [])
    assert {reason: found["rows"] for reason, found in report.dropped.items()} == {"too long": 5, "no answer": 1}
    examples = report.dropped["too long"]["examples"]
    assert isinstance(examples, list)
    assert [example["id"] for example in examples] == ["a.jsonl:0", "a.jsonl:1", "a.jsonl:2"]
    assert max(len(example["detail"]) for example in examples) <= 160


def test_the_markdown_has_every_number_and_no_text_breaks_its_tables():
    text = markdown(build_report({"a": 5}, TRAIN, [], DROPPED, [Finding("no gold to check", "a", "a.jsonl:3", "q")]))
    assert "| too long | 5 | a.jsonl:0: `xxx" in text
    assert "| no gold to check | 1 | a.jsonl:3: `q` |" in text
    # Backticks, newlines and bars of the data are made harmless.
    assert r"| no answer | 1 | a.jsonl:9: `'\|' ` |" in text
    tables = [block.splitlines() for block in text.split("\n\n")]
    assert all(len({line.replace(r"\|", "").count("|") for line in table}) == 1 for table in tables)
