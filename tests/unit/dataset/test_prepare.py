import json
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest
from transformers import AutoTokenizer

from configs.data import ColdStart, Data
from configs.errors import UserError
from configs.schema import Model, Recipe, Rollout
from tasks.dataset.prepare import prepare
from tasks.dataset.store import Receipt, read_demonstrations, read_prompts, read_receipt


def build_recipe(
    context_length: int = 40, max_response_tokens: int = 20, cold_start: ColdStart | None = None, **data: object
) -> Recipe:
    return Recipe(
        name="test",
        model=Model(context_length=context_length),
        data=Data.model_validate({"train_size": 8, "eval_size": 4} | data),
        rollout=Rollout(prompts_per_step=2, shards=1, max_response_tokens=max_response_tokens),
        cold_start=cold_start,
    )


def write_questions(path: Path, asked: list[str]) -> str:
    path.write_text("".join(json.dumps({"question": text, "answer": "1"}) + "\n" for text in asked))
    return str(path)


@pytest.fixture
def out_dir(tmp_path: Path) -> Path:
    return tmp_path / "prepared"


def test_prompts_are_stored_with_the_ids_that_the_template_gives(model_dir: Path, out_dir: Path):
    receipt = prepare(build_recipe(), model_dir, out_dir)
    train, held_out = read_prompts(receipt.path, "train"), read_prompts(receipt.path, "eval")
    assert (len(train), len(held_out)) == (receipt.train_rows, receipt.eval_rows) == (8, 4)
    assert not {prompt.question for prompt in train} & {prompt.question for prompt in held_out}
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    for prompt in train + held_out:
        tokens = "".join(tokenizer.convert_ids_to_tokens(prompt.ids))
        assert tokens == f"<bos><user>{prompt.question.text}<assistant>"
        assert prompt.question.gold == str(eval(prompt.question.text.removesuffix("=?")))


def test_a_receipt_goes_through_json(model_dir: Path, out_dir: Path):
    receipt = prepare(build_recipe(), model_dir, out_dir)
    assert Receipt(**json.loads(json.dumps(asdict(receipt)))) == receipt == read_receipt(receipt.path)


def test_the_same_inputs_are_prepared_once(model_dir: Path, out_dir: Path):
    first = prepare(build_recipe(), model_dir, out_dir)
    written = (Path(first.path) / "train.arrow").stat().st_mtime_ns
    assert prepare(build_recipe(), model_dir, out_dir) == first
    assert (Path(first.path) / "train.arrow").stat().st_mtime_ns == written
    assert len(list(out_dir.iterdir())) == 1


@pytest.mark.parametrize(
    "changed",
    [
        build_recipe(seed=1),
        build_recipe(system_prompt="Be brief.", context_length=64),
        build_recipe(context_length=41),
        build_recipe(cold_start=ColdStart(steps=1, batch_size=1)),
    ],
    ids=["seed", "system prompt", "limit", "cold start"],
)
def test_changed_settings_are_prepared_anew(model_dir: Path, out_dir: Path, changed: Recipe):
    assert prepare(changed, model_dir, out_dir).digest != prepare(build_recipe(), model_dir, out_dir).digest


def test_a_changed_row_or_tokenizer_is_prepared_anew(model_dir: Path, out_dir: Path, tmp_path: Path):
    source = write_questions(tmp_path / "a.jsonl", ["a", "b", "c"])
    recipe = build_recipe(source=source, train_size=2, eval_size=1)
    digests = [prepare(recipe, model_dir, out_dir).digest]
    write_questions(tmp_path / "a.jsonl", ["a", "b", "d"])
    digests.append(prepare(recipe, model_dir, out_dir).digest)
    with (model_dir / "chat_template.jinja").open("a") as template:
        template.write("{# changed #}")
    digests.append(prepare(recipe, model_dir, out_dir).digest)
    assert len(set(digests)) == 3


def test_a_folder_that_was_not_finished_is_not_taken_for_one(
    model_dir: Path, out_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    def fails_after_the_first_table(table: pa.Table, path: str, **_: object) -> None:
        if not path.endswith("train.arrow"):
            raise OSError("disk full")
        Path(path).touch()

    with monkeypatch.context() as patch:
        patch.setattr("tasks.dataset.store.feather.write_feather", fails_after_the_first_table)
        with pytest.raises(OSError, match="disk full"):
            prepare(build_recipe(), model_dir, out_dir)
    assert not list(out_dir.iterdir())
    assert prepare(build_recipe(), model_dir, out_dir).train_rows == 8


def test_prompts_that_leave_no_room_for_a_response_are_left_out_and_counted(
    model_dir: Path, out_dir: Path, tmp_path: Path
):
    # <bos><user>…<assistant> takes 3 tokens; the limit is 28 - 20 = 8, so questions of 5 characters fit, of 6 don't.
    source = write_questions(tmp_path / "a.jsonl", ["aaaaa", "bbbbb", "ccccc", "ddddd", "eeeeee"])
    dropped, rows = 0, 0
    for seed in range(3):
        recipe = build_recipe(source=source, train_size=3, eval_size=2, context_length=28, seed=seed)
        receipt = prepare(recipe, model_dir, out_dir)
        kept = read_prompts(receipt.path, "train") + read_prompts(receipt.path, "eval")
        assert max(len(prompt.ids) for prompt in kept) == 8
        rows += receipt.train_rows + receipt.eval_rows
        dropped += receipt.dropped["too long"]
    assert (rows, dropped) == (12, 3)


def test_a_limit_that_leaves_too_few_prompts_says_so(model_dir: Path, out_dir: Path, tmp_path: Path):
    source = write_questions(tmp_path / "a.jsonl", ["a" * 12, "b" * 12, "c" * 12, "d"])
    recipe = build_recipe(source=source, train_size=3, eval_size=1, context_length=23, seed=1)
    with pytest.raises(UserError, match=r"training prompts: [01] of 3 rows left, limit 3 tokens .*; 2 or more"):
        prepare(recipe, model_dir, out_dir)


def test_a_cold_start_gets_a_fresh_demonstration_for_each_of_its_steps(model_dir: Path, out_dir: Path):
    recipe = build_recipe(cold_start=ColdStart(steps=10, batch_size=40, wrong_share=0.25))
    receipt = prepare(recipe, model_dir, out_dir)
    train = {tuple(prompt.ids): prompt.question for prompt in read_prompts(receipt.path, "train")}
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    demonstrations = read_demonstrations(receipt.path)
    assert len(demonstrations) == 400

    right = 0
    for prompt_ids, response_ids in demonstrations:
        assert response_ids[-1] == tokenizer.eos_token_id
        answer = f"<answer>{train[tuple(prompt_ids)].gold}</answer><eos>"
        right += "".join(tokenizer.convert_ids_to_tokens(response_ids)).endswith(answer)
    # 0.75 of 400, give or take four standard deviations: sqrt(400 * 0.75 * 0.25) = 8.7.
    assert 265 < right < 335
    # Each prompt comes in each of the 50 epochs.
    assert all(sum(tuple(ids) == prompt for ids, _ in demonstrations) == 50 for prompt in train)


def test_without_a_cold_start_there_are_no_demonstrations(model_dir: Path, out_dir: Path):
    assert read_demonstrations(prepare(build_recipe(), model_dir, out_dir).path) == []


def test_demonstrations_longer_than_a_response_may_be_are_refused(model_dir: Path, out_dir: Path):
    # <think></think><answer>ddd</answer><eos> takes 8 tokens.
    recipe = build_recipe(max_response_tokens=7, cold_start=ColdStart(steps=4, batch_size=8))
    with pytest.raises(UserError, match=r"rollout\.max_response_tokens is 7, but demonstrations take up to 8"):
        prepare(recipe, model_dir, out_dir)
