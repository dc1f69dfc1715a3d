"""How long something may take follows from the work, and what a recipe says takes its place."""

from dataclasses import replace
from pathlib import Path

import pytest

from configs.errors import UserError
from configs.loader import load_recipe
from configs.timeouts import Timeouts
from tasks.cluster.limits import Limits, described, duration, limits, limits_of
from tasks.run.ledger import create_run
from trainer.files import write_json
from trainer.model import tiny_policy

RECIPE = load_recipe("r1")
SMALL, LARGE = 1.6e6, 1.6e9


def grown(name: str, **settings: object) -> float:
    """By how much a limit of r1 grows with other settings."""
    overrides = [f"{key.replace('__', '.')}={value}" for key, value in settings.items()]
    return getattr(limits(load_recipe("r1", overrides), SMALL), name) - getattr(limits(RECIPE, SMALL), name)


@pytest.mark.parametrize(
    "name", ["cold_start", "start_engines", "rollout", "update", "checkpoint", "publish", "evaluate"]
)
def test_a_larger_model_gets_more_time(name: str) -> None:
    assert getattr(limits(RECIPE, LARGE), name) > 1.3 * getattr(limits(RECIPE, SMALL), name)


def test_longer_responses_get_more_time_to_be_made() -> None:
    longer = {"rollout__max_response_tokens": 32, "model__context_length": 80}

    assert grown("rollout", **longer) > 0
    assert grown("request", **longer) > 16 * 0.25
    assert grown("evaluate", **longer) > 0


def test_more_samples_get_more_time_to_be_scored_and_learnt_from() -> None:
    assert grown("reward", rollout__samples_per_prompt=16) == 128 * 5 / 2  # a shard's, five seconds each, two workers
    assert grown("update", rollout__samples_per_prompt=16) > 0


def test_rare_checkpoints_give_a_replay_more_time() -> None:
    assert grown("update", learner__checkpoint_every=20) > 0
    assert grown("rollout", learner__checkpoint_every=20) == grown("update", learner__checkpoint_every=20)


def test_larger_buckets_get_more_time() -> None:
    assert grown("bucket", weight_sync__bucket_bytes=2**30) == pytest.approx(2**29 / 100e6)


def test_gpus_get_less_time_for_the_same_work() -> None:
    assert grown("update", learner__gpus=1, engine__gpus=1) < 0


def test_a_judge_is_waited_for_as_often_as_it_is_asked() -> None:
    judged = {"kind": "http", "url": "http://judge", "batch_size": 32, "concurrency": 2, "attempts": 3}
    recipe = load_recipe("r1", [f"reward.accuracy={judged}"])

    # 128 samples of a shard in 4 requests, 2 at once, each 3 times of at most twice 60 s; and it may be away.
    assert limits(recipe, SMALL).reward - RECIPE.timeouts.answer == 2 * 3 * 2 * 60 + RECIPE.timeouts.away


@pytest.mark.parametrize("name", [name for name in Timeouts.model_fields if name in Limits.__dataclass_fields__])
def test_what_the_recipe_says_takes_the_place_of_what_follows(name: str) -> None:
    assert getattr(limits(load_recipe("r1", [f"timeouts.{name}=77"]), LARGE), name) == 77


def test_every_limit_that_is_derived_can_be_said_in_the_recipe_but_for_the_two_within_tasks() -> None:
    derived = {name for name, field in Timeouts.model_fields.items() if field.default is None}

    assert Limits.__dataclass_fields__.keys() - derived == {"engine", "learner"}


def test_a_model_of_the_hub_is_measured_when_it_is_here(tmp_path: Path) -> None:
    run = create_run(tmp_path, load_recipe("r1", ["model.path=some/model"]))
    before = limits_of(run)
    tiny_policy.build(tmp_path / "model")
    write_json(run.dataset, {"model": str(tmp_path / "model"), "eval_rows": 200})

    assert limits_of(run) == limits_of(replace(run, recipe=load_recipe("r1")))
    assert limits_of(run).update < before.update


def test_settings_of_before_are_read_in_stored_recipes_and_refused_in_others_with_their_new_place(
    tmp_path: Path,
) -> None:
    from configs.loader import read_recipe

    old = tmp_path / "recipe.yaml"
    old.write_text("name: r\nengine: {start_timeout: 1.0, request_timeout: 2.0, hang_timeout: 5.0}\n")

    found = read_recipe(old).timeouts
    assert (found.engine_start, found.request, found.hang) == (1.0, 2.0, 5.0)
    with pytest.raises(UserError, match=r"unknown key engine\.hang_timeout; it is now timeouts\.hang"):
        load_recipe(str(old))


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "5 s"), (59.6, "60 s"), (60, "1 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_a_length_of_time_is_said_in_its_largest_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_limits_are_said_in_words() -> None:
    assert described(limits(load_recipe("r1", ["timeouts.hang=30"]), SMALL))["hang"] == "30 s"
