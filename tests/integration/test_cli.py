"""The front door: a user's mistake is one clear line and a non-zero exit code, before anything starts."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.processes import Marked

ROOT = Path(__file__).parents[2]
RL_POST = Path(sys.executable).parent / "rl-post"


@pytest.fixture
def rl_post(tmp_path: Path):
    marked = Marked(tmp_path / "home")

    def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        env = marked.environment | {"COLUMNS": "200", **environment}
        return subprocess.run([RL_POST, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)

    yield call
    assert marked.processes() == []


def data_file(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "questions.jsonl"
    path.write_text(text)
    return ["cold_start=null", "data.settings={}", f"data.source={path}", "data.train_size=64", "data.eval_size=4"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "r1", "rollout.shard=3"], "unknown key rollout.shard; did you mean shards?"),
        (["run", "r1", "steps=many"], "steps: Input should be a valid integer"),
        (["run", "nope"], "no recipe 'nope'"),
        (["run", "--resume", "nope"], "no run 'nope'"),
        (["run", "r1", "rollout.prompts_per_step=9999"], "larger than the dataset"),
        (["run", "r1", "cold_start=null", "data.settings={}", "data.source=missing.jsonl"], "missing.jsonl"),
        (["run", "r1", "cold_start=null", "data.source=reasoning_gym:basic_aritmetic"], "basic_arithmetic"),
        (["plan", "r1", "algorithm.clip_hi=1"], "did you mean clip_high?"),
    ],
)
def test_a_mistake_is_one_line_without_a_traceback(rl_post, arguments: list[str], message: str) -> None:
    done = rl_post(*arguments)

    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_a_missing_column_is_named_with_the_file_and_the_columns_that_there_are(rl_post, tmp_path: Path) -> None:
    done = rl_post("run", "r1", *data_file(tmp_path, '{"q": "1+1", "answer": "2"}\n'))

    assert done.returncode == 2
    assert "question" in done.stderr and "questions.jsonl" in done.stderr and "it has answer, q" in done.stderr


def test_an_empty_dataset_is_refused(rl_post, tmp_path: Path) -> None:
    done = rl_post("run", "r1", *data_file(tmp_path, ""))

    assert done.returncode == 2
    assert "questions.jsonl" in done.stderr


def test_a_directory_that_cannot_be_written_is_refused(rl_post, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    done = rl_post("run", "r1", RL_POST_HOME=str(tmp_path / "file"))

    assert done.returncode == 2
    assert "RL_POST_HOME" in done.stderr


def test_a_prefect_server_that_does_not_answer_is_named(rl_post) -> None:
    done = rl_post("run", "r1", PREFECT_API_URL="http://127.0.0.1:9/api")

    assert done.returncode == 2
    assert "http://127.0.0.1:9/api does not answer" in done.stderr


def test_a_plan_shows_the_resolved_recipe_and_starts_nothing(rl_post, tmp_path: Path) -> None:
    done = rl_post("plan", "r1", "rollout.shards=3")

    assert done.returncode == 0
    assert "shards: 3" in done.stdout and "scale: tiny" in done.stdout
    assert "engine 0" in done.stdout and "-m sglang.launch_server" in done.stdout
    assert not (tmp_path / "home").exists()


def test_a_plan_for_machines_that_are_not_here_has_their_scale_and_their_variables(rl_post) -> None:
    done = rl_post("plan", "r1", "--cluster", "1x2:MI300X")

    assert done.returncode == 0
    assert "scale: pair" in done.stdout and "HIP_VISIBLE_DEVICES=1" in done.stdout


def test_a_plan_that_does_not_fit_says_so_and_fails(rl_post) -> None:
    done = rl_post("plan", "r1", "model.path=deepseek-ai/DeepSeek-R1", "--cluster", "1x2:H100")

    assert done.returncode == 1
    assert "does not fit" in done.stdout and "learner-0 needs" in done.stdout


def test_the_doctor_finds_nothing_missing_here(rl_post) -> None:
    done = rl_post("doctor")

    assert done.returncode == 0, done.stdout
    assert "sglang" in done.stdout and "memory" in done.stdout
