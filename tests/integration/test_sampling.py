"""Dynamic sampling and curriculum in the whole flow, on real Prefect and Ray with the engine that computes nothing.

About half of that engine's answers are right whatever the policy, so that every other group of two tells nothing: a
step takes several rounds. One home serves all runs; the model and the cold start are made once.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.projections import Projections
from flows.rl_post import rl_post
from tasks.dataset.prompt_order import prompts_of_round
from tasks.dataset.store import read_prompts
from tasks.orchestrator.task_runner import ray_task_runner
from tasks.records.samples import SampleRow, raw_accuracy, read_samples
from tasks.reward.dynamic_sampling import NothingToLearn, learnt_from
from tasks.run.directory import Run
from tasks.run.ledger import committed_steps, open_run, read_commit
from tasks.run.verify import verify
from trainer.files import read_json, sha256

ROOT = Path(__file__).parents[2]
STEPS, GROUPS, SHARDS = 3, 4, 2
LOW, HIGH = 0.1, 0.9
RECIPE = [
    f"steps={STEPS}",
    "cold_start.steps=2",
    "data.train_size=24",
    "data.eval_size=8",
    f"data.curriculum={{low: {LOW}, high: {HIGH}}}",
    f"rollout={{prompts_per_step: {GROUPS}, samples_per_prompt: 2, max_response_tokens: 16, shards: {SHARDS}}}",
    "algorithm.dynamic_sampling.max_rounds=12",
    "evaluation.every=10",
    "learner.checkpoint_every=2",
]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect_server")]


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home for runs and a Ray cluster whose workers find the fake engine in SGLang's place."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT / 'tests' / 'faults' / 'fake'}{os.pathsep}{ROOT}")
        patch.setenv("RL_POST_HOME", str(folder))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        with ray_task_runner():
            yield folder


def train(home: Path, *overrides: str) -> Run:
    outcome = rl_post("quickstart", [*RECIPE, *overrides])
    return open_run(home, outcome["run"])


def samples_of(run: Run, step: int) -> list[SampleRow]:
    return read_samples(sorted(run.step_file(step, "").glob("scored-*.parquet")))


def rounds_of(run: Run, step: int) -> int:
    return len(list(run.step_file(step, "").glob("scored-*.parquet"))) // SHARDS


def rates_after(run: Run, step: int) -> dict[str, float]:
    return read_json(run.pass_rates(step))


@pytest.fixture(scope="module")
def undisturbed(home: Path) -> Run:
    return train(home)


def test_a_step_samples_round_after_round_and_learns_from_groups_that_tell_something(undisturbed: Run) -> None:
    assert committed_steps(undisturbed) == list(range(STEPS + 1))
    assert max(rounds_of(undisturbed, step) for step in range(1, STEPS + 1)) > 1
    for step in range(1, STEPS + 1):
        rows = samples_of(undisturbed, step)
        assert len(rows) == rounds_of(undisturbed, step) * GROUPS * 2
        assert {version for row in rows for version in row["weights_versions"]} == {step - 1}
        groups: dict[int, list[SampleRow]] = defaultdict(list)
        for row in learnt_from(undisturbed.recipe, rows):
            groups[row["group"]].append(row)
        assert len(groups) == GROUPS
        assert all({raw_accuracy(row) for row in group} == {0.0, 1.0} for group in groups.values())
        # The learner was given those, and no others.
        metrics = read_commit(undisturbed, step)["metrics"]
        assert metrics["policy/tokens"] == sum(len(row["response_ids"]) for group in groups.values() for row in group)
        assert metrics["policy/zero_variance_share"] == 0.0
    assert verify(undisturbed) == []


def test_prompts_are_drawn_by_the_pass_rates_of_the_ledger(undisturbed: Run) -> None:
    prompts = read_prompts(read_json(undisturbed.step_file(0, "dataset.json"))["path"], "train")
    for step in range(1, STEPS + 1):
        rows = samples_of(undisturbed, step)
        for turn in range(rounds_of(undisturbed, step)):
            drawn = {group: prompt.question.id for group, prompt in prompts_of_round(undisturbed, step, turn, prompts)}
            assert drawn == {row["group"]: row["prompt_id"] for row in rows if row["group"] // GROUPS == turn}
    # Those that were always or never right are passed over while others last.
    known = rates_after(undisturbed, 1)
    passed_over = {prompt for prompt, rate in known.items() if not LOW <= rate <= HIGH}
    assert passed_over
    assert passed_over.isdisjoint(row["prompt_id"] for row in samples_of(undisturbed, 3) if row["group"] < GROUPS)


def test_pass_rates_are_those_of_the_latest_samples(undisturbed: Run) -> None:
    for step in range(1, STEPS + 1):
        outcomes: dict[str, list[bool]] = defaultdict(list)
        for row in samples_of(undisturbed, step):
            outcomes[row["prompt_id"]].append(row["status"] == "right")
        before = rates_after(undisturbed, step - 1) if step > 1 else {}
        latest = {prompt: sum(right) / len(right) for prompt, right in outcomes.items()}
        rates = rates_after(undisturbed, step)
        assert rates == before | latest
        metrics = read_commit(undisturbed, step)["metrics"]
        assert metrics["rollout/pass_rate_prompts"] == len(rates)
        assert metrics["rollout/pass_rate_mean"] == pytest.approx(sum(rates.values()) / len(rates))


def test_a_run_that_breaks_off_and_goes_on_has_the_same_samples_pass_rates_and_weights(
    undisturbed: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class BreaksOff(Exception):
        pass

    def project_until(projections: Any, step: int) -> None:
        if step == 2:
            raise BreaksOff
        project(projections, step)

    project = Projections.project
    known = set((home / "runs").iterdir())
    with monkeypatch.context() as patch, pytest.raises(BreaksOff):
        patch.setattr(Projections, "project", project_until)
        train(home)
    [root] = set((home / "runs").iterdir()) - known

    rl_post(resume=root.name)

    resumed = open_run(home, root.name)
    for step in range(1, STEPS + 1):
        assert samples_of(resumed, step) == samples_of(undisturbed, step)
        assert rates_after(resumed, step) == rates_after(undisturbed, step)
    weights = [sha256(run.weights(STEPS) / "model.safetensors") for run in (undisturbed, resumed)]
    assert weights[0] == weights[1]
    assert verify(resumed) == []


def test_when_its_rounds_are_used_up_a_step_ends_the_run_with_what_to_change(home: Path) -> None:
    known = set((home / "runs").iterdir())

    with pytest.raises(
        NothingToLearn, match=r"after 1 rollout rounds only \d of 4 groups .*dynamic_sampling\.max_rounds"
    ):
        train(home, "algorithm.dynamic_sampling.max_rounds=1")

    [root] = set((home / "runs").iterdir()) - known
    run = open_run(home, root.name)
    assert max(rounds_of(run, step) for step in range(1, STEPS + 1)) == 1
