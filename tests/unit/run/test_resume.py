"""Going on with a run: what may differ, what is recorded of it, and what must be whole."""

from pathlib import Path

import pytest

from configs.errors import UserError
from configs.loader import load_recipe
from tasks.records.samples import SCORED, write_samples
from tasks.run.directory import Run
from tasks.run.events import read_events
from tasks.run.identity import identity
from tasks.run.ledger import commit, create_run, open_run, run_of
from tasks.run.resume import check_resume, discard_unusable, go_on
from tasks.run.verify import verify
from trainer.files import read_json, write_json


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with two committed steps."""
    run = create_run(tmp_path, load_recipe("r1", ["steps=5", "optimizer.learning_rate=1e-6"]), flow_run="flow-1")
    for step in range(3):
        write_json(run.step_file(step, "batch.json"), {"scored": []})
        commit(run, step, {})
    return run


def checkpoint(run: Run, version: int) -> None:
    write_json(run.checkpoint(version) / "manifest.json", {"version": version, "run": identity(run), "sizes": {}})


ALLOWED = ["steps=9", "evaluation.every=7", "tracking.register_as=other", "engine.count=2", "learner.threads=1",
           "learner.checkpoint_every=3", "accelerator_type=H100"]  # fmt: skip


@pytest.mark.parametrize("override", ALLOWED)
def test_what_changes_no_result_may_change_and_is_kept_for_the_next_resume(run: Run, override: str) -> None:
    key, value = override.split("=")
    changed = go_on(run, check_resume(run, [override]))

    again = open_run(run.home, run.id)
    assert again.recipe == changed.recipe != run.recipe
    (change,) = read_json(run.root / "run.json")["changes"]
    assert change["after_step"] == 2
    assert [(k, str(new)) for k, (_, new) in change["changed"].items()] == [(key, value)]
    assert [event["event"] for event in read_events(run.events)] == ["changed"]


def test_what_would_make_it_another_run_is_refused_with_the_list_of_what_may_change(run: Run) -> None:
    with pytest.raises(UserError, match=r"another optimizer\.learning_rate, seed.*What may change: steps, evaluation"):
        go_on(run, check_resume(run, ["optimizer.learning_rate=2e-6", "seed=4", "steps=9"]))

    assert open_run(run.home, run.id).recipe == run.recipe


def test_the_same_value_is_no_change(run: Run) -> None:
    before = (run.root / "run.json").read_bytes()

    assert go_on(run, check_resume(run, ["optimizer.learning_rate=1e-6", "steps=5"])) == run
    assert (run.root / "run.json").read_bytes() == before
    assert read_events(run.events) == []


def test_a_run_of_before_the_section_of_timeouts_goes_on_with_what_it_had(run: Run) -> None:
    stored = run.recipe_file.read_text()
    run.recipe_file.write_text(stored.replace("engine:\n", "engine:\n  hang_timeout: 33.0\n  start_timeout: 44.0\n"))
    old = open_run(run.home, run.id)

    assert (old.recipe.timeouts.hang, old.recipe.timeouts.engine_start) == (33.0, 44.0)
    assert check_resume(old, []).changes == {}
    assert check_resume(old, ["timeouts.hang=50"]).changes == {"timeouts.hang": [33.0, 50]}
    assert identity(old) == identity(run)


def test_another_scale_is_refused(run: Run) -> None:
    with pytest.raises(UserError, match="can't go on with another scale"):
        check_resume(run, ["scale=pair"])


def test_fewer_steps_than_are_committed_are_refused(run: Run) -> None:
    with pytest.raises(UserError, match="steps=1 is less than the 2 steps"):
        check_resume(run, ["steps=1"])


def test_another_number_of_steps_is_refused_where_learning_rates_fall_towards_the_last(tmp_path: Path) -> None:
    falling = create_run(tmp_path, load_recipe("r1", ["steps=8", "optimizer.schedule=cosine"]))

    with pytest.raises(UserError, match="its learning rates fall towards the last step"):
        check_resume(falling, ["steps=9"])


def test_a_misspelt_setting_is_named(run: Run) -> None:
    with pytest.raises(UserError, match=r"did you mean steps\?"):
        check_resume(run, ["stepz=9"])


def test_a_damaged_step_that_must_be_replayed_is_named_before_anything_starts(run: Run) -> None:
    checkpoint(run, 1)
    run.step_file(2, "batch.json").write_text("{")

    with pytest.raises(UserError, match=r"steps/000002/batch\.json is damaged.*rl-post verify"):
        check_resume(run, [])


def test_a_damaged_step_before_the_last_whole_checkpoint_is_not_needed(run: Run) -> None:
    checkpoint(run, 1)
    run.step_file(1, "batch.json").write_text("{")

    check_resume(run, [])


def test_a_damaged_checkpoint_counts_for_nothing(run: Run) -> None:
    checkpoint(run, 1)
    (run.checkpoint(1) / "manifest.json").write_text("{")
    run.step_file(1, "batch.json").write_text("{")

    with pytest.raises(UserError, match=r"steps/000001/batch\.json is damaged"):
        check_resume(run, [])


def test_a_flow_run_that_is_run_again_finds_the_run_that_it_began(run: Run) -> None:
    create_run(run.home, load_recipe("r1"), flow_run="flow-2")

    assert run_of(run.home, "flow-1") == run
    assert run_of(run.home, "flow-3") is None


def batch(run: Run, step: int, logprob: float | None) -> None:
    """Store the scored samples of a step that was begun."""
    tokens = {"response_ids": [4], "logprobs": [logprob], "weights_versions": [step - 1], "finish_reason": "stop"}
    rows = [{"step": step, "group": 0, "index": 0, "prompt_ids": [5], **tokens}]
    write_samples(run.scored(step, 0), rows, SCORED)
    write_json(run.batch(step), {"scored": [run.scored(step, 0).name]})


@pytest.mark.parametrize("logprob", [None, float("nan"), float("inf"), 0.5], ids=repr)
def test_u13_a_resume_discards_samples_that_no_update_can_take_and_those_that_came_after(
    run: Run, logprob: float | None
) -> None:
    batch(run, 3, -0.5)
    batch(run, 4, logprob)
    batch(run, 5, -0.5)
    assert len([problem for problem in verify(run) if "rl-post resume" in problem]) == 1

    discard_unusable(run, vocabulary=None)

    assert run.steps_begun() == [0, 1, 2, 3]
    (event,) = read_events(run.events)
    assert (event["event"], event["step"]) == ("samples discarded", 4)
    assert not [problem for problem in verify(run) if "can't be used" in problem]


def test_a_resume_keeps_samples_that_can_be_used_and_those_that_weights_were_made_of(run: Run) -> None:
    batch(run, 3, None)
    write_json(run.update(3), {})
    batch(run, 4, -0.5)

    discard_unusable(run, vocabulary=range(10))

    assert run.steps_begun() == [0, 1, 2, 3, 4]
    assert read_events(run.events) == []
