"""A stage's task under real Prefect and Ray may die or fail half-way: what it makes is there once, and is small."""

import os
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from prefect import flow

from configs.loader import load_recipe
from configs.schema import Recipe
from tasks.orchestrator.dispatch import Call, stage, submit
from tasks.orchestrator.task_runner import ray_task_runner
from tasks.records.samples import ROLLOUT, read_samples, write_samples
from tasks.reward.task import score_rewards
from tasks.run.directory import Run
from tasks.run.ledger import Receipt, create_run, once

RUN = Run(Path("run"), Recipe(name="r"))


def note(log: Path) -> int:
    """Append a line, and return how many there are."""
    with log.open("a") as file:
        file.write("attempt\n")
    return len(log.read_text().splitlines())


@stage(name="make a row", run_name="make a row", limit=lambda limits: 60.0)
def make_a_row(run: Run, folder: Path, step: int, die: bool) -> Receipt:
    """Write a row, and in the first two attempts come to nothing before the receipt."""

    def make() -> Receipt:
        samples = folder / f"{step}.parquet"
        write_samples(samples, [{"step": step, "index": attempts}], ROLLOUT)
        if attempts < 3:
            if die:
                os._exit(1)
            raise RuntimeError("half-way")
        return {"path": str(samples)}

    attempts = note(folder / f"{step}.log")
    return once(folder / f"{step}.json", make)


@stage(name="count", run_name="count", limit=lambda limits: 60.0)
def count(run: Run, log: Path) -> int:
    return note(log)


@pytest.mark.usefixtures("prefect_server", "ray_cluster")
class TestOnRealServices:
    def run(self, body: Any) -> Any:
        return flow(task_runner=ray_task_runner(), name="tasks")(body)()

    @pytest.mark.parametrize("die", [True, False], ids=["dies", "raises"])
    def test_rows_of_attempts_that_came_to_nothing_are_not_there(self, tmp_path: Path, die: bool) -> None:
        receipt = self.run(lambda: submit(make_a_row, run=RUN, folder=tmp_path, step=1, die=die).result())

        assert [(row["step"], row["index"]) for row in read_samples([receipt["path"]])] == [(1, 3)]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["1.json", "1.log", "1.parquet"]

    def test_two_equal_calls_are_two_runs(self, tmp_path: Path) -> None:
        log = tmp_path / "log"

        results = self.run(lambda: [submit(count, run=RUN, log=log).result() for _ in range(2)])

        assert results == [1, 2]


def test_a_million_tokens_go_by_file_and_the_receipt_stays_small(tmp_path: Path) -> None:
    run = create_run(tmp_path, load_recipe("r1"))
    row = {"step": 1, "group": 0, "prompt_id": "q", "text": "7", "question": "3+4", "source": "arithmetic", "gold": "7"}
    tokens = {"prompt_ids": [1], "response_ids": [2] * 1000, "logprobs": [-1.0] * 1000, "weights_versions": [0] * 1000}
    rows = [{**row, **tokens, "index": index, "finish_reason": "stop", "metadata": "{}"} for index in range(1000)]
    samples = run.step_file(1, "rollout-00.parquet")
    write_samples(samples, rows, ROLLOUT)

    receipt = score_rewards.fn(run, 1, 0, {"path": str(samples), "seconds": 1.0})

    assert len(str(receipt)) < 1000
    assert len(read_samples([receipt["path"]])) == 1000


def test_a_step_that_is_done_keeps_no_step_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Call, "_submit", lambda self, resolve: None)
    monkeypatch.setattr(Call, "_wait_for_own", lambda self: {"version": 1})

    before = Call(count, RUN, {})
    after = Call(count, RUN, {"log": before})
    after.result()
    gone = ref(before)
    del before

    assert gone() is None
    assert after.result() == {"version": 1}
