"""`rl-post verify`: each kind of damage is named with its file, and a whole run has none."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from configs.loader import load_recipe
from tasks.records.samples import GIVEN_UP, SCORED, SampleRow, write_samples
from tasks.run.directory import Run
from tasks.run.identity import identity
from tasks.run.ledger import commit, create_run
from tasks.run.verify import verify
from trainer.files import remove, write_json


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with steps 0 to 2, the weights of 0 and 2, and a checkpoint of 2."""
    run = create_run(tmp_path, load_recipe("r1", ["steps=2"]))
    for step in range(3):
        write_samples(run.step_file(step, "scored-00.parquet"), [], SCORED)
        commit(run, step, {})
    for version in (0, 2):
        run.weights(version).mkdir(parents=True)
        save_file({"weight": np.full(100, version, np.float32)}, run.weights(version) / "model.safetensors")
    checkpoint = run.checkpoint(2)
    checkpoint.mkdir(parents=True)
    (checkpoint / "state").write_bytes(b"state")
    write_json(checkpoint / "manifest.json", {"version": 2, "run": identity(run), "sizes": {"state": 5}})
    run.logs.mkdir()
    return run


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def test_a_whole_run_has_no_problem(run: Run) -> None:
    assert verify(run) == []


def test_what_a_killed_writer_left_and_a_step_in_the_making_are_no_problem(run: Run) -> None:
    write_samples(run.step_file(3, "rollout-00.parquet"), [], SCORED)
    run.step_file(2, ".scored-00.parquet.x1y2").write_bytes(b"half")
    (run.root / "weights" / ".000003.tmp").mkdir()

    assert verify(run) == []


DAMAGE: dict[str, tuple[Callable[[Run], object], str]] = {
    "truncated Parquet": (
        lambda run: cut(run.step_file(1, "scored-00.parquet")),
        "steps/000001/scored-00.parquet is damaged",
    ),
    "one bit": (lambda run: flip(run.step_file(2, "scored-00.parquet")), "steps/000002/scored-00.parquet is damaged"),
    "missing samples": (
        lambda run: run.step_file(1, "scored-00.parquet").unlink(),
        "steps/000001/scored-00.parquet is missing",
    ),
    "torn commit": (lambda run: cut(run.step_file(1, "commit.json")), "steps/000001/commit.json is damaged"),
    "torn weights": (lambda run: cut(run.weights(2) / "model.safetensors"), "weights/000002 is damaged"),
    "missing weights": (lambda run: remove(run.weights(2)), "weights/000002 is missing"),
    "torn checkpoint": (lambda run: cut(run.checkpoint(2) / "state"), "checkpoints/000002 is damaged"),
    "no manifest": (lambda run: (run.checkpoint(2) / "manifest.json").unlink(), "checkpoints/000002 is damaged"),
    "foreign step": (lambda run: (run.root / "steps" / "foo").mkdir(), "steps/foo is not of this run"),
    "foreign checkpoint": (
        lambda run: (run.root / "checkpoints" / "old").mkdir(),
        "checkpoints/old is not of this run",
    ),
    "foreign backup": (
        lambda run: (run.root / "checkpoints" / "000001.bak").mkdir(),
        "checkpoints/000001.bak is not of this run",
    ),
    "foreign file": (lambda run: (run.root / "notes.txt").touch(), "notes.txt is not of this run"),
    "file after the commit": (lambda run: run.step_file(1, "more").touch(), "steps/000001/more is not of this run"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_named_with_its_file(run: Run, case: str) -> None:
    do, expected = DAMAGE[case]
    do(run)

    (problem,) = verify(run)
    assert expected in problem


def row(**change: Any) -> SampleRow:
    sound = {
        "step": 3,
        "group": 1,
        "index": 0,
        "prompt_ids": [5],
        "response_ids": [0, 9],
        "logprobs": [-0.5, -0.25],
        "weights_versions": [2, 2],
        "finish_reason": "stop",
    }
    return sound | change


FLAWS: dict[str, tuple[dict[str, Any], str]] = {
    "null log-prob": ({"logprobs": [-0.5, None]}, "the log-prob of token 1 is None"),
    "NaN log-prob": ({"logprobs": [-0.5, math.nan]}, "the log-prob of token 1 is nan"),
    "foreign id": ({"response_ids": [0, 10]}, "token 1 is 10, none of the vocabulary"),
    "lengths that differ": ({"logprobs": [-0.5]}, "2 response tokens came with 1 log-probs"),
    "too long": ({"response_ids": [1] * 99, "logprobs": [-0.5] * 99}, "99 response tokens are more than the limit"),
    "empty": ({"response_ids": [], "logprobs": [], "weights_versions": []}, "it ended by stop without a token"),
}


@pytest.mark.parametrize("name", ["rollout-00.parquet", "scored-01.parquet"])
@pytest.mark.parametrize("flaw", FLAWS)
def test_u13_samples_that_no_update_can_take_are_named_with_the_command_that_replaces_them(
    run: Run, name: str, flaw: str
) -> None:
    change, expected = FLAWS[flaw]
    write_samples(run.step_file(3, name), [row(), row(index=1, **change)], SCORED)

    (problem,) = verify(run, vocabulary=range(10))

    assert problem.startswith(f"steps/000003/{name} can't be used: group 1, sample 1: {expected}")
    assert problem.endswith(f"; `rl-post resume {run.id}` makes the step's samples again")


def test_u13_sound_samples_and_ones_that_were_given_up_are_no_problem(run: Run) -> None:
    nothing: dict[str, Any] = {"response_ids": [], "logprobs": [], "weights_versions": [], "finish_reason": GIVEN_UP}
    write_samples(run.step_file(3, "scored-00.parquet"), [row(reward=1.0), row(index=1, **nothing)], SCORED)

    assert verify(run, vocabulary=range(10)) == []


@pytest.mark.parametrize("committed", [False, True])
def test_u13_of_samples_that_weights_were_made_of_it_says_the_command_that_begins_anew(
    run: Run, committed: bool
) -> None:
    write_samples(run.step_file(3, "scored-00.parquet"), [row(logprobs=[-0.5, None])], SCORED)
    write_json(run.update(3), {})
    if committed:
        commit(run, 3, {})

    problems = [problem for problem in verify(run, vocabulary=range(10)) if "can't be used" in problem]

    assert len(problems) == 1
    *_, command, _ = problems[0].split("`")
    assert command == f"rl-post run {run.recipe_file}"
    assert load_recipe(command.split()[-1]).model_copy(update={"scale": run.recipe.scale}) == run.recipe
