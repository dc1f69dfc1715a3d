from pathlib import Path

from configs.schema import Recipe
from flows.data import examples
from tasks.records.question import Prompt, Question
from tests.families import build
from trainer.model.tokens import read_tokenizer


def shown(tmp_path: Path, opened: str = "", **recipe: object) -> str:
    build("qwen3", tmp_path / "model", weights=False)
    text = "<|im_start|>user\n2+3=?<|im_end|>\n<|im_start|>assistant\n"
    ids = read_tokenizer(tmp_path / "model").encode(text, add_special_tokens=False).ids
    prompt = Prompt(Question("sums:1", "2+3=?", "5", "sums"), ids, opened)
    (line,) = examples(Recipe.model_validate({"name": "r", **recipe}), [prompt], tmp_path / "model")
    return line


def test_a_prompt_is_shown_with_its_control_tokens_its_gold_and_what_the_gold_is_worth(tmp_path: Path) -> None:
    line = shown(tmp_path)

    assert "<|im_start|>user" in line and "2+3=?" in line and "<|im_end|>" in line
    assert "gold: 5\n" in line and "reward of the gold: 1.0 (right; accuracy 1)" in line


def test_the_gold_stands_behind_a_thought_that_the_prompt_opened(tmp_path: Path) -> None:
    line = shown(tmp_path, opened="<think>", reward={"accuracy": "numeric", "parts": {"format": "format"}})

    assert "reward of the gold: 2.0 (right; accuracy 1, format 1)" in line


def test_a_server_is_not_asked(tmp_path: Path) -> None:
    judge = {"kind": "http", "url": "http://127.0.0.1:9/score"}

    assert "known only to the server" in shown(tmp_path, reward={"accuracy": judge})
