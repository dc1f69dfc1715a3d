import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from transformers import AutoTokenizer

from configs.data import ColdStart, Data
from configs.errors import UserError
from configs.schema import Model, Recipe, Rollout
from tasks.dataset.prepare import prepare
from tasks.dataset.store import PreparedDataset, read_demonstrations, read_prompts, read_receipt, read_report
from tasks.dataset.task import prepare_dataset
from tasks.run.ledger import create_run


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
    assert PreparedDataset(**json.loads(json.dumps(asdict(receipt)))) == receipt == read_receipt(receipt.path)


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


def rows_file(path: Path, *rows: dict) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def three_long_prompts(tmp_path: Path, **data: Any) -> Recipe:
    # <bos><user>…<assistant> takes 3 tokens: 12-token prompts, limit 28 - 20 = 8.
    source = write_questions(tmp_path / "train.jsonl", ["abcdefghi", "bcdefghij", "cdefghijk"])
    evaluation = {"source": write_questions(tmp_path / "eval.jsonl", ["x"])}
    sizes = {"train_size": 3, "eval_size": 1}
    return build_recipe(context_length=28, source=source, eval=evaluation, **sizes, **data)


def test_a_limit_that_leaves_nothing_says_so(model_dir: Path, out_dir: Path, tmp_path: Path):
    with pytest.raises(UserError, match=r"training prompts: 0 of 3 rows left, limit 8 .*3 too long"):
        prepare(three_long_prompts(tmp_path), model_dir, out_dir)


def test_evaluation_prompts_and_conversations_have_the_same_limit(model_dir: Path, out_dir: Path, tmp_path: Path):
    turns = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}, {"role": "user", "content": "d"}]
    train = rows_file(tmp_path / "t.jsonl", *({"question": q, "answer": 1} for q in [turns, "a", "b"]))
    held_out = write_questions(tmp_path / "e.jsonl", ["abcdefghi", "x"])
    # The conversation: <bos><user>ab<assistant>c<user>d<assistant> are 9 tokens.
    recipe = build_recipe(context_length=28, source=train, eval={"source": held_out}, train_size=3, eval_size=2)
    receipt = prepare(recipe, model_dir, out_dir)
    examples = read_report(receipt.path).dropped["too long"]["examples"]
    assert isinstance(examples, list)
    assert {example["id"] for example in examples} == {"t.jsonl:1", "e.jsonl:1"}
    assert (receipt.train_rows, receipt.eval_rows, receipt.dropped) == (2, 1, {"too long": 2})


def test_prompts_that_are_too_long_can_be_an_error(model_dir: Path, out_dir: Path, tmp_path: Path):
    recipe = three_long_prompts(tmp_path, too_long="error")
    with pytest.raises(UserError, match=r"train\.jsonl:\d: the prompt takes 12 tokens, limit 8; 3 prompts are"):
        prepare(recipe, model_dir, out_dir)


def test_prompts_cut_from_the_left_keep_exactly_their_last_ids(model_dir: Path, out_dir: Path, tmp_path: Path):
    receipt = prepare(three_long_prompts(tmp_path, too_long="cut_left"), model_dir, out_dir)
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    prompts = {prompt.question.id: prompt.ids for prompt in read_prompts(receipt.path, "train")}
    assert tokenizer.convert_ids_to_tokens(prompts["train.jsonl:1"]) == [*"cdefghi", "<assistant>"]
    assert not receipt.dropped


def test_questions_whose_own_gold_is_not_right_are_refused_and_named(model_dir: Path, out_dir: Path, tmp_path: Path):
    golds = ["4", "1,000", "about five", "7", "-8"]
    source = rows_file(tmp_path / "a.jsonl", *({"question": f"q{i}", "answer": g} for i, g in enumerate(golds)))
    recipe = build_recipe(source=source, train_size=3, eval_size=2)
    receipt = prepare(recipe, model_dir, out_dir)
    assert receipt.dropped == {"own gold not right": 1}
    dropped = read_report(receipt.path).dropped["own gold not right"]
    assert dropped["examples"] == [{"id": "a.jsonl:3", "detail": "unscorable, gold `about five`: q2"}]


def test_a_source_is_checked_by_its_own_reward(model_dir: Path, out_dir: Path, tmp_path: Path):
    words = {"source": write_questions(tmp_path / "words.jsonl", ["a", "b", "c"]), "reward": {"accuracy": "exact"}}
    path = Path(words["source"])
    path.write_text(path.read_text().replace('"1"', '"yes"'))
    numbers = {"source": write_questions(tmp_path / "numbers.jsonl", ["d", "e", "f"])}
    recipe = build_recipe(sources=[words, numbers], train_size=4, eval_size=2)
    assert not prepare(recipe, model_dir, out_dir).dropped
    # By the recipe's numeric reward `yes` can't be won.
    other = build_recipe(sources=[{"source": words["source"]}, numbers], train_size=4, eval_size=2)
    assert prepare(other, model_dir, out_dir).dropped == {"own gold not right": 3}


def test_a_gold_in_the_prompt_and_a_missing_gold_are_noted(model_dir: Path, out_dir: Path, tmp_path: Path):
    source = rows_file(tmp_path / "a.jsonl", *({"question": q, "answer": "4"} for q in ["answer: 4", "b", "c", "d"]))
    receipt = prepare(build_recipe(source=source, train_size=3, eval_size=1), model_dir, out_dir)
    assert read_report(receipt.path).noted == {
        "the gold is in the prompt": {"rows": 1, "examples": [{"id": "a.jsonl:1", "detail": "gold `4`: answer: 4"}]}
    }
    assert not receipt.dropped


def test_the_report_adds_up(model_dir: Path, out_dir: Path, tmp_path: Path):
    rows = [{"question": q, "answer": a} for q, a in [("a", 1), ("A", 1), ("b", None), ("c", "x"), ("d" * 30, 1)]]
    rows += [{"question": f"q{i}", "answer": 1} for i in range(5)]
    recipe = build_recipe(source=rows_file(tmp_path / "a.jsonl", *rows), train_size=6, eval_size=2)
    receipt = prepare(recipe, model_dir, out_dir)
    report = read_report(receipt.path)
    assert receipt.dropped == {"no answer": 1, "repeated": 1, "own gold not right": 1, "too long": 1}
    assert {reason: found["rows"] for reason, found in report.dropped.items()} == receipt.dropped
    [counts] = report.sources.values()
    assert (counts["rows"], counts["left out"], counts["not needed"]) == (10, 4, 0)
    assert counts["training"] + counts["evaluation"] == 6


def test_two_preparations_of_the_same_inputs_are_the_same_bytes(model_dir: Path, tmp_path: Path):
    recipe = build_recipe(sources=[{"source": "arithmetic"}, {"source": "reasoning_gym:gcd"}], context_length=200)
    folders = [Path(prepare(recipe, model_dir, tmp_path / name).path) for name in ("one", "two")]
    for name in ("train.arrow", "eval.arrow", "report.json"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_a_base_model_is_prepared_with_the_plain_template(bare_model_dir: Path, out_dir: Path):
    with pytest.raises(UserError, match=r"data\.chat_template"):
        prepare(build_recipe(), bare_model_dir, out_dir)
    receipt = prepare(build_recipe(chat_template="plain"), bare_model_dir, out_dir)
    assert receipt.train_rows == 8


def test_a_changed_template_file_is_prepared_anew(model_dir: Path, out_dir: Path, tmp_path: Path):
    path = tmp_path / "own.jinja"
    digests = []
    for text in ("<user>{{ messages[-1].content }}", "<system>{{ messages[-1].content }}"):
        path.write_text(text)
        digests.append(prepare(build_recipe(chat_template=str(path)), model_dir, out_dir).digest)
    assert digests[0] != digests[1]


def test_a_dataset_smaller_than_a_step_is_refused_before_anything_starts(tmp_path: Path):
    source = write_questions(tmp_path / "a.jsonl", ["a", "b", "c", "d"])
    with pytest.raises(ValueError, match=r"prompts_per_step \(8\).* is larger than the dataset: data.train_size is 3"):
        Recipe(
            name="test",
            data=Data(source=source, train_size=3, eval_size=1),
            rollout=Rollout(prompts_per_step=8, shards=1),
        )


def test_a_small_dataset_of_unknown_size_is_refused_at_preparation(model_dir: Path, out_dir: Path, tmp_path: Path):
    source = write_questions(tmp_path / "a.jsonl", ["a", "b"])
    recipe = build_recipe(source=source, train_size=None, eval_size=1)
    with pytest.raises(UserError, match=r"training prompts: 1 of 1 rows left, .*; 2 or more are needed"):
        prepare(recipe, model_dir, out_dir)


def test_a_run_that_is_resumed_with_other_data_stops(model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = write_questions(tmp_path / "a.jsonl", ["a", "b", "c"])
    recipe = build_recipe(source=source, train_size=2, eval_size=1)
    run = create_run(tmp_path / "home", recipe)
    monkeypatch.setattr("tasks.dataset.prepare.materialise", lambda *_: model_dir)
    first = prepare_dataset.fn(run)
    assert prepare_dataset.fn(run)["digest"] == first["digest"]
    write_questions(tmp_path / "a.jsonl", ["a", "b", "changed"])
    with pytest.raises(UserError, match=r"the dataset is not the one that test-.* began with: .*a\.jsonl"):
        prepare_dataset.fn(run)
