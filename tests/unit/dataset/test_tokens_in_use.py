# ruff: noqa: RUF001 - DeepSeek's control tokens have wide bars
"""Prompts of the families of models that people train: whose ids they are, and what must never get into them."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from configs.errors import UserError
from configs.schema import Recipe
from tasks.dataset.control import control_tokens, refuse_control_tokens
from tasks.dataset.prepare import prepare
from tasks.dataset.prompts import encode_prompts, encode_responses, load_tokenizer, render_prompts
from tasks.dataset.store import PreparedDataset, read_prompts, read_report
from tasks.records.question import Question
from tasks.records.thinking import opened
from tests.families import FAMILIES, build, edit
from trainer.model.tokens import read_tokenizer, tokens_of

each_family = pytest.mark.parametrize("family", FAMILIES)
QUESTION = Question(id="q", text="What is 2 + 3?", gold="5", source="test")
DAY = date(2024, 7, 26)


def recipe(**data: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "test",
            "model": {"context_length": 128},
            "data": {"train_size": 8, "eval_size": 4, "chat_template_date": DAY, **data},
            "rollout": {"prompts_per_step": 2, "shards": 1, "max_response_tokens": 20},
        }
    )


def asked(tmp_path: Path, *texts: str, **data: Any) -> Recipe:
    """A recipe that trains on these questions."""
    rows = [{"question": text, "answer": "5"} for text in texts]
    for name, chosen in {"train": rows, "eval": [{"question": "Held out?", "answer": "5"}]}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chosen))
    sources = {"source": str(tmp_path / "train.jsonl"), "eval": {"source": str(tmp_path / "eval.jsonl")}}
    return recipe(**sources, train_size=len(texts), eval_size=1, **data)


def prepared(tmp_path: Path, model: Path, wanted: Recipe) -> PreparedDataset:
    return prepare(wanted, model, tmp_path / "prepared")


@each_family
def test_u10_prompts_have_the_ids_of_tokenizer_json_and_no_space_is_lost(family: str, tmp_path: Path):
    model = build(family, tmp_path / "model", weights=False)
    raw = read_tokenizer(model)

    receipt = prepared(tmp_path, model, asked(tmp_path, "What is 2 + 3?", "What is 14 + 27? São", "Let me think"))

    for prompt in read_prompts(receipt.path, "train"):
        text = raw.decode(prompt.ids, skip_special_tokens=False)
        assert prompt.question.text in text
        (rendered,) = render_prompts(load_tokenizer(model), [prompt.question], None, day=DAY)
        assert prompt.ids == raw.encode(rendered, add_special_tokens=False).ids


@each_family
def test_u10_prompts_that_transformers_own_loader_reads_otherwise_are_told_of(family: str, tmp_path: Path):
    model = build(family, tmp_path / "model", weights=False)

    noted = read_report(prepared(tmp_path, model, recipe()).path).noted

    differs = noted.get("AutoTokenizer reads the prompt otherwise")
    assert (differs is not None) == (family == "deepseek")
    if differs:
        assert differs["rows"] == 12


@each_family
def test_u10_responses_are_encoded_by_tokenizer_json_and_end_with_the_tokenizer_s_eos(family: str, tmp_path: Path):
    model = build(family, tmp_path, weights=False)
    raw = read_tokenizer(model)

    (ids,) = encode_responses(load_tokenizer(model), ["The answer is 5."])

    assert ids == [*raw.encode("The answer is 5.", add_special_tokens=False).ids, tokens_of(model).ends[0]]
    assert raw.id_to_token(ids[-1]) == FAMILIES[family].eos


def test_u11_a_response_ends_with_a_configuration_s_eos_where_the_tokenizer_names_none(tmp_path: Path):
    model = build("qwen2.5", tmp_path, weights=False)
    edit(model / "tokenizer_config.json", eos_token=None)

    (ids,) = encode_responses(load_tokenizer(model), ["5"])

    assert read_tokenizer(model).id_to_token(ids[-1]) == "<|im_end|>"


def test_u12_a_prompt_with_an_id_that_is_no_token_of_the_model_is_left_out_and_counted(tmp_path: Path):
    model = build("qwen3", tmp_path / "model", weights=False)
    edit(model / "config.json", vocab_size=read_tokenizer(model).token_to_id("<think>"))

    receipt = prepared(tmp_path, model, asked(tmp_path, "a <think> b", "What is 2 + 3?", "What is 3 + 2?"))

    assert (receipt.train_rows, receipt.dropped) == (2, {"ids that are no tokens of the model": 1})


CLOCKS = {
    "the day": "{{ strftime_now('%d %b %Y') }}",
    "where it is there": "{% if strftime_now is defined %}{{ strftime_now('%Y-%m-%d') }}{% endif %}",
    "in a variable": "{% set today = strftime_now('%B %d, %Y') %}{{ today }}",
    "the hour": "{{ strftime_now('%H:%M') }}",
}


@pytest.mark.parametrize("clock", CLOCKS.values(), ids=CLOCKS)
@pytest.mark.parametrize("family", ["qwen2.5", "mistral"])
def test_u16_a_template_that_writes_today_s_date_asks_for_one_that_stays(family: str, clock: str, tmp_path: Path):
    model = build(family, tmp_path / "model", weights=False)
    (model / "chat_template.jinja").write_text(clock + FAMILIES[family].template)

    with pytest.raises(UserError, match=r"writes the date of today.*data\.chat_template_date=2026-11-30"):
        prepared(tmp_path, model, recipe(chat_template_date=None))
    days = [DAY, date(2024, 7, 27)]
    receipts = [prepared(tmp_path, model, recipe(chat_template_date=day)) for day in days]
    assert receipts[0].digest != receipts[1].digest


@each_family
def test_u16_only_a_template_that_asks_for_the_date_needs_one(family: str, tmp_path: Path):
    model = build(family, tmp_path / "model", weights=False)
    settings = FAMILIES[family].date

    receipt = prepared(tmp_path, model, recipe(chat_template_date=None, chat_template_settings=settings))

    assert receipt.train_rows == 8


def test_u16_llama_3_writes_the_date_that_the_recipe_says(tmp_path: Path):
    tokenizer = load_tokenizer(build("llama3", tmp_path, weights=False))

    (text,) = render_prompts(tokenizer, [QUESTION], None, day=DAY)
    (own,) = render_prompts(tokenizer, [QUESTION], None, {"date_string": "1 Jan 1970"}, DAY)

    assert "Today Date: 26 Jul 2024" in text and "Today Date: 1 Jan 1970" in own


def test_u16_the_ids_that_came_out_are_part_of_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whatever it is that makes a template write something else."""
    model = build("qwen2.5", tmp_path / "model", weights=False)
    digests = []
    for number in (1, 2, 1):
        monkeypatch.setattr(
            "tasks.dataset.prepare.render_prompts", lambda _, asked, *__, n=number: [f"{q.text} {n}" for q in asked]
        )
        digests.append(prepare(recipe(), model, tmp_path / str(len(digests))).digest)

    assert digests[0] != digests[1]
    assert digests[0] == digests[2]


def with_control(family: str) -> list[str]:
    made = FAMILIES[family]
    return [*made.special, *(["<｜User｜>", "<｜Assistant｜>"] if family == "deepseek" else [])]


@each_family
def test_u17_a_question_with_a_control_token_is_left_out_and_counted(family: str, tmp_path: Path):
    model = build(family, tmp_path / "model", weights=False)
    questions = [f"What is {token} {number}?" for number, token in enumerate(with_control(family))]

    receipt = prepared(tmp_path, model, asked(tmp_path, *questions, "What is 2 + 3?", "What is 3 + 2?"))

    assert (receipt.train_rows, receipt.dropped) == (2, {"control token in the question": len(questions)})
    control = {read_tokenizer(model).token_to_id(token) for token in with_control(family)}
    kept = read_prompts(receipt.path, "train")
    frames = [[index for index in prompt.ids if index in control] for prompt in kept]
    assert frames[0] == frames[1]


@each_family
@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_u17_every_message_of_a_question_is_looked_at(family: str, role: str, tmp_path: Path):
    model = build(family, tmp_path, weights=False)
    tokenizer = load_tokenizer(model)
    control = control_tokens(model, str(tokenizer.chat_template))
    earlier = json.dumps([{"role": role, "content": f"so{FAMILIES[family].eos}and"}])
    question = Question("q", "2?", "5", "test", earlier=earlier)

    kept, left_out = refuse_control_tokens(tokenizer, [QUESTION, question], control)

    assert kept == [QUESTION]
    assert [(finding.id, finding.detail) for finding in left_out] == [("q", f"{FAMILIES[family].eos}: 2?")]


@each_family
def test_u17_a_system_prompt_with_a_control_token_is_refused(family: str, tmp_path: Path):
    model = build(family, tmp_path / "model", weights=False)

    with pytest.raises(UserError, match=r"data\.system_prompt has .*control tokens"):
        prepared(tmp_path, model, recipe(system_prompt=f"Be brief.{FAMILIES[family].eos}"))


@each_family
@pytest.mark.parametrize(
    "text",
    ["Write <think> first, then <answer>5</answer>.", "Is a < b > c?", "What is <|assistant> ?", "<b>bold</b> [INST"],
)
def test_u17_a_question_that_speaks_of_tags_or_only_looks_so_is_kept_as_it_is(family: str, text: str, tmp_path: Path):
    model = build(family, tmp_path / "model", weights=False)

    receipt = prepared(tmp_path, model, asked(tmp_path, text, "What is 2 + 3?"))

    assert receipt.dropped == {}
    kept = {prompt.question.text: prompt for prompt in read_prompts(receipt.path, "train")}
    assert text in read_tokenizer(model).decode(kept[text].ids, skip_special_tokens=False)


def test_u17_a_token_of_another_family_is_plain_text(tmp_path: Path):
    model = build("mistral", tmp_path, weights=False)
    tokenizer = load_tokenizer(model)

    kept, left_out = refuse_control_tokens(
        tokenizer,
        [Question("q", "<|im_start|>user", "5", "test")],
        control_tokens(model, str(tokenizer.chat_template)),
    )

    assert len(kept) == 1 and not left_out


@each_family
def test_u05_a_prompt_knows_the_tag_that_its_template_opens(family: str, tmp_path: Path):
    model = build(family, tmp_path / "model", weights=False)

    receipt = prepared(tmp_path, model, asked(tmp_path, "Close <think> please?", "What is 2 + 3?"))

    tag = "<think>" if family == "deepseek" else ""
    assert [prompt.opened for prompt in read_prompts(receipt.path, "train")] == [tag, tag]


@pytest.mark.parametrize(
    ("prompt", "tag"),
    [
        ("<|assistant|><think>\n", "<think>"),
        ("<|assistant|><think>\n\n</think>\n\n", ""),
        ("<|assistant|><think>Okay, ", "<think>"),
        ("[/INST][THINK]", "[THINK]"),
        ("<assistant><think>", "<think>"),
        ("<assistant>", ""),
        ("<|im_start|>assistant\n<reasoning>\n", "<reasoning>"),
        ("assistant◁think▷", "◁think▷"),
        ("<think>a</think><answer>", "<answer>"),
        ("</think>", ""),
    ],
)
def test_u05_the_tag_that_is_open_at_the_end_is_told(prompt: str, tag: str):
    assert opened(f"<|user|>Say <think> or </think>.{prompt}", "Say <think> or </think>.") == tag


def test_u16_a_run_of_an_earlier_version_keeps_the_prompts_that_it_began_with(tmp_path: Path):
    from tasks.dataset.task import prepare_dataset
    from tasks.run.ledger import create_run
    from trainer.files import read_json, write_json

    run = create_run(tmp_path / "home", recipe())
    first = prepare_dataset.fn(run)
    stored = read_json(run.dataset)
    earlier = {key: value for key, value in stored.items() if key not in ("preparation", "tokens")}
    write_json(run.dataset, earlier | {"digest": "of an earlier version"})

    again = prepare_dataset.fn(run)

    assert again["digest"] == "of an earlier version"
    assert (again["path"], again["tokens"]) == (first["path"], first["tokens"])


def test_encoding_prompts_is_rendering_and_tokenising(tmp_path: Path):
    tokenizer = load_tokenizer(build("smollm2", tmp_path, weights=False))

    (ids,) = encode_prompts(tokenizer, [QUESTION], "Be brief.")

    assert tokenizer.decode(ids) == render_prompts(tokenizer, [QUESTION], "Be brief.")[0]
