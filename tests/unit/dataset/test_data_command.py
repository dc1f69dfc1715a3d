"""`rl-post data RECIPE`: the report in the terminal; a user's mistake is one line and exit code 2."""

import json
import sys
from pathlib import Path

import pytest
import ray

from configs.schema import Model
from flows.cli import main

SAMPLES = Path(__file__).parents[2] / "data"
GSM8K = [
    "gsm8k",
    f"data.source={SAMPLES / 'gsm8k-train.jsonl'}",
    f"data.eval.source={SAMPLES / 'gsm8k-test.jsonl'}",
    "data.settings={}",
    "data.eval.settings={}",
    "rollout.prompts_per_step=2",
    "rollout.shards=1",
]


@pytest.fixture
def rl_post_data(model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def fetch(model: Model, cache: Path, weights: bool) -> Path:
        assert not weights
        return model_dir

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rl-post", "data", *arguments])
        monkeypatch.setattr("tasks.dataset.prepare.materialise", fetch)
        monkeypatch.setattr("flows.cli.console.width", 200)
        monkeypatch.setenv("RL_POST_HOME", str(tmp_path / "home"))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


def test_the_report_is_printed_and_nothing_is_started(rl_post_data, tmp_path: Path):
    code, out, _ = rl_post_data(*GSM8K)
    assert code == 0
    assert "gsm8k-train.jsonl:5" in out and "in the evaluation set" in out and "own gold not right" in out
    [folder] = (tmp_path / "home" / "cache" / "datasets").iterdir()
    assert f"4 training and 2 evaluation prompts in {folder}" in out.replace("\n", "")
    assert json.loads((folder / "receipt.json").read_text())["train_rows"] == 4
    assert not ray.is_initialized()
    assert not (tmp_path / "home" / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            [*GSM8K, "data.columns={answer: solution}"],
            "no column 'solution' (columns.answer of the reader gsm8k)",
        ),
        ([*GSM8K, "data.reader=gsm9k"], "data.reader: Input should be 'plain', 'gsm8k'"),
        ([*GSM8K, "rollout.prompts_per_step=9"], "training prompts: 4 of 5 rows left"),
        (["gsm9k"], "no recipe 'gsm9k'"),
        (["r1", "cold_start=null", "data.settings={}", "data.source=none.jsonl"], "none.jsonl: no such file"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(rl_post_data, arguments: list[str], message: str):
    code, out, err = rl_post_data(*arguments)
    assert code == 2
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err
    assert not out


def test_every_row_that_is_left_out_is_named_by_file_and_line(rl_post_data, tmp_path: Path):
    bad = {
        2: {"question": None, "answer": "#### 1"},
        **{line: {"question": f"q{line}", "answer": "1"} for line in range(4, 9)},
    }
    rows = [bad.get(line, {"question": f"What is {line}+0?", "answer": f"#### {line}"}) for line in range(1, 14)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    code, out, _ = rl_post_data(*GSM8K, f"data.source={tmp_path / 'a.jsonl'}")

    [folder] = (tmp_path / "home" / "cache" / "datasets").iterdir()
    left_out = [json.loads(line) for line in (folder / "left_out.jsonl").read_text().splitlines()]
    assert code == 0
    assert f"all 6 rows that were left out: {folder}/left_out.jsonl" in out.replace("\n", "")
    assert {(row["id"], row["reason"]) for row in left_out} == {
        ("a.jsonl:2", "no question"),
        *((f"a.jsonl:{line}", "no answer after ####") for line in range(4, 9)),
    }


def test_a_bad_line_is_named(rl_post_data, tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"question": "a", "answer": "#### 1"}\n{"question": ')
    code, _, err = rl_post_data(*GSM8K, f"data.source={tmp_path / 'a.jsonl'}")
    assert code == 2 and "a.jsonl:2: not valid JSON" in err
