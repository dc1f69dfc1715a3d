"""Samples that hang, crash or fill the memory cost themselves only, and no process outlives its owner."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from configs.errors import UserError
from configs.reward import Python
from tasks.reward.outcome import Outcome
from tasks.reward.pool import RENEW, Job, WorkerPool
from tests.unit.reward.conftest import Answer

FUNCTION = "tests.unit.reward.samples.as_told"
SPEED = Path(__file__).parents[3] / "benchmarks" / "scoring-speed.json"


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool([Python(function=FUNCTION)], workers=2, memory_mb=256)
    yield pool
    pool.close()


def run(pool: WorkerPool, answer: Answer, texts: list[str], seconds: float = 20.0) -> list[Outcome]:
    return pool.run([Job(0, answer("", text), seconds) for text in texts])


def nursery() -> psutil.Process:
    [found] = [child for child in psutil.Process().children() if "tasks.reward.worker" in " ".join(child.cmdline())]
    return found


def test_outcomes_are_in_the_order_of_the_jobs(pool: WorkerPool, answer: Answer):
    values = [i / 100 for i in range(100)]
    assert [outcome.value for outcome in run(pool, answer, [str(value) for value in values])] == values


def test_no_jobs_start_no_process(answer: Answer):
    idle = WorkerPool([Python(function="no.such.module")], workers=2, memory_mb=256)
    assert idle.run([]) == []


@pytest.mark.parametrize("ending", ["exit", "leave", "abort"])
def test_a_sample_that_ends_its_process_is_an_error_and_the_others_are_scored(
    pool: WorkerPool, answer: Answer, ending: str
):
    outcomes = run(pool, answer, ["0.1", ending, ending, "0.2", ending, "0.3"])
    assert [outcome.value for outcome in outcomes] == [0.1, None, None, 0.2, None, 0.3]
    assert outcomes[1] == Outcome(None, "error", "it ended its process")


def test_a_sample_that_fills_the_memory_is_stopped_at_the_limit(pool: WorkerPool, answer: Answer):
    outcomes = run(pool, answer, ["0.1", "fill", "0.2"], seconds=60.0)
    assert outcomes == [Outcome(0.1), Outcome(None, "timeout", "it took too much memory"), Outcome(0.2)]


@pytest.mark.parametrize("endless", ["hang", "sleep"])
def test_a_sample_that_takes_too_long_is_killed(pool: WorkerPool, answer: Answer, endless: str):
    outcomes = run(pool, answer, [endless, "0.1", endless, endless, "0.2"], seconds=0.5)
    assert [outcome.failure for outcome in outcomes] == ["timeout", None, "timeout", "timeout", None]


# What the bound in the pool's docstring stands on; the seconds are in benchmarks/scoring-speed.json.


def test_no_sample_waits_while_a_worker_is_idle(pool: WorkerPool, answer: Answer, tmp_path: Path):
    # The first sample ends when the last one was worked on.
    outcomes = run(pool, answer, [f"await {tmp_path / 'sign'}", "0.1", "0.2", f"make {tmp_path / 'sign'}"])
    assert [outcome.value for outcome in outcomes] == [1.0, 0.1, 0.2, 1.0]


def test_one_sample_in_a_hundred_that_never_ends_costs_one_worker_each(answer: Answer):
    pool = WorkerPool([Python(function=FUNCTION)], workers=2, memory_mb=256)
    texts = ["hang", *["pid"] * 199, "hang", *["pid"] * 99]

    outcomes = run(pool, answer, texts, seconds=1.0)

    pool.close()
    assert [place for place, outcome in enumerate(outcomes) if outcome.failure] == [0, 200]
    assert {outcomes[place].failure for place in (0, 200)} == {"timeout"}
    # Two to begin with, of which the first only hangs, and one for each that was killed.
    assert len({outcome.value for outcome in outcomes if outcome.failure is None}) <= 3


def test_the_measured_batch_with_one_sample_in_a_hundred_that_never_ends_is_within_the_bound():
    found = json.loads(SPEED.read_text())
    numbers, limit, workers = found["numbers"], found["limit_seconds"], found["workers"]
    killed = limit + numbers["replacement of a killed worker, with its slower first samples (s)"]
    usual = numbers["1,000 symbolic samples (s)"] * workers / 1000
    bound = (10 * killed + 990 * usual) / workers + killed * (1 - 1 / workers)
    assert numbers["timeouts"] == 10
    assert numbers["1,000 samples, 10 of which never end (s)"] <= bound


def test_a_sample_that_raises_says_what_happened(pool: WorkerPool, answer: Answer):
    [outcome] = run(pool, answer, ["raise"])
    assert outcome.failure == "error" and "ValueError: boom" in outcome.reason


def test_a_worker_is_kept_for_the_next_sample_and_replaced_when_it_is_old(answer: Answer):
    pool = WorkerPool([Python(function=FUNCTION)], workers=1, memory_mb=256)
    pids = [outcome.value for outcome in run(pool, answer, ["pid"] * (RENEW + 2))]
    pool.close()
    assert len(set(pids[:RENEW])) == 1
    assert len(set(pids)) == 2


def test_threads_share_a_pool(pool: WorkerPool, answer: Answer):
    found: dict[int, list[float | None]] = {}

    def work(number: int) -> None:
        found[number] = [outcome.value for outcome in run(pool, answer, [str(number / 10)] * 20)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [number / 10] * 20 for number in range(4)}


def test_a_function_that_is_not_there_is_the_users_mistake(answer: Answer):
    pool = WorkerPool([Python(function="tests.unit.reward.samples.missing")], workers=1, memory_mb=256)
    with pytest.raises(UserError, match="missing"):
        run(pool, answer, ["1"])


def test_a_pool_whose_processes_were_all_killed_starts_anew(pool: WorkerPool, answer: Answer):
    assert run(pool, answer, ["0.1"]) == [Outcome(0.1)]
    parent = nursery()
    # Ray kills the children of a dying worker with SIGKILL: the nursery, which then takes its workers with it.
    workers = parent.children()
    parent.kill()
    assert psutil.wait_procs(workers, timeout=30)[1] == []
    assert run(pool, answer, ["0.2"]) == [Outcome(0.2)]


def test_nothing_is_left_when_the_pool_is_closed(answer: Answer):
    pool = WorkerPool([Python(function=FUNCTION)], workers=2, memory_mb=256)
    before = set(psutil.Process().children(recursive=True))
    run(pool, answer, ["0.1", "0.2"])
    started = set(psutil.Process().children(recursive=True)) - before
    pool.close()
    assert len(started) == 3
    assert psutil.wait_procs(started, timeout=30)[1] == []


def test_nothing_is_left_when_the_owner_is_killed_in_the_middle_of_a_sample():
    code = f"""
from configs.reward import Python
from tasks.records.question import Question
from tasks.reward.pool import Job, WorkerPool
from tasks.reward.outcome import Answered
hang = Answered("hang", Question("q", "", "", ""), "stop", 1)
WorkerPool([Python(function={FUNCTION!r})], workers=2, memory_mb=256).run([Job(0, hang, 1000.0)] * 2)
"""
    owner = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 120
    while len(family := psutil.Process(owner.pid).children(recursive=True)) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(family) == 3
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    assert psutil.wait_procs(family, timeout=30)[1] == []
