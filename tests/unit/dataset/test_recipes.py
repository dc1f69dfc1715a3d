"""The recipes for real models, prepared from sample files of our own in the layouts of their data sets."""

from pathlib import Path

import pytest

from configs.loader import load_recipe
from tasks.dataset.prepare import prepare
from tasks.dataset.store import PreparedDataset, read_prompts, read_report

SAMPLES = Path(__file__).parents[2] / "data"
SMALL = ["rollout.prompts_per_step=2", "rollout.shards=1"]


def prepare_sample(name: str, model_dir: Path, out_dir: Path) -> PreparedDataset:
    files = [f"data.source={SAMPLES / name}-train.jsonl", f"data.eval.source={SAMPLES / name}-test.jsonl"]
    recipe = load_recipe(name, [*files, "data.settings={}", "data.eval.settings={}", *SMALL])
    return prepare(recipe, model_dir, out_dir)


def golds(receipt: PreparedDataset) -> dict[str, str]:
    return {prompt.question.id: prompt.question.gold for prompt in read_prompts(receipt.path, "train")}


def test_gsm8k(model_dir: Path, tmp_path: Path):
    receipt = prepare_sample("gsm8k", model_dir, tmp_path)
    assert golds(receipt) == {
        f"gsm8k-train.jsonl:{line}": gold for line, gold in [(1, "12"), (2, "1500"), (3, "45"), (6, "36")]
    }
    dropped = read_report(receipt.path).dropped
    assert {reason: found["examples"][0]["id"] for reason, found in dropped.items()} == {  # type: ignore[index]
        "no answer after ####": "gsm8k-train.jsonl:5",
        "repeated": "gsm8k-train.jsonl:4",
        "in the evaluation set": "gsm8k-train.jsonl:7",
        "own gold not right": "gsm8k-train.jsonl:8",
    }
    assert receipt.eval_rows == 2


def test_math(model_dir: Path, tmp_path: Path):
    receipt = prepare_sample("math", model_dir, tmp_path)
    assert set(golds(receipt).values()) == {r"\frac{1}{2}", "7", "(-2, 2)"}
    assert receipt.dropped == {"no boxed answer": 1}


def test_reasoning_gym_mixes_its_tasks_by_weight(model_dir: Path, tmp_path: Path):
    recipe = load_recipe("reasoning_gym", ["data.train_size=16", "data.eval_size=4", "model.context_length=999"])
    report = read_report(prepare(recipe, model_dir, tmp_path).path)
    counts = {name: (found["training"], found["evaluation"]) for name, found in report.sources.items()}
    assert counts == {
        "reasoning_gym:chain_sum": (8, 2),
        "reasoning_gym:gcd": (4, 1),
        "reasoning_gym:number_sorting": (4, 1),
    }


@pytest.mark.parametrize("name", ["gsm8k", "math", "reasoning_gym"])
def test_no_recipe_writes_a_hub_id_that_the_loader_would_take_for_a_file(name: str):
    assert all(":" in source.source for source in load_recipe(name).data.everything)
