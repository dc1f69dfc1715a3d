"""One driver a run: a second one is refused, and what a dead one left is taken over."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs.errors import UserError
from configs.loader import load_recipe
from tasks.run.directory import Run
from tasks.run.events import read_events
from tasks.run.ledger import create_run
from tasks.run.lock import LockLost, check_free, hold, this_process
from trainer.files import read_json, write_json

HOLD = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from tasks.run.ledger import open_run
    from tasks.run.lock import hold
    with hold(open_run(Path(sys.argv[1]), sys.argv[2])):
        print("held", flush=True)
        time.sleep(60)
""")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return create_run(tmp_path, load_recipe("r1", ["timeouts.silence=0.3"]))


@pytest.fixture
def driver(run: Run):
    process = subprocess.Popen([sys.executable, "-c", HOLD, run.home, run.id], stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def held_by(run: Run, **differs: Any) -> None:
    """Write the lock of another owner, as found on the disk."""
    write_json(run.root / "lock.json", this_process() | differs)


def age(path: Path, seconds: float) -> None:
    stamp = time.time() - seconds
    os.utime(path, (stamp, stamp))


def test_a_second_driver_is_refused_with_the_name_of_the_first(run: Run, driver: subprocess.Popen[str]) -> None:
    with pytest.raises(UserError, match=f"process {driver.pid} on "), hold(run):
        pass
    with pytest.raises(UserError, match=f"process {driver.pid} on "):
        check_free(run)


def test_the_lock_of_a_killed_driver_is_taken_over_at_once_and_noted(
    run: Run, driver: subprocess.Popen[str], caplog: pytest.LogCaptureFixture
) -> None:
    driver.kill()
    driver.wait()

    check_free(run)
    with hold(run) as lock:
        lock.check()

    assert f"process {driver.pid} on " in caplog.text
    assert [event["event"] for event in read_events(run.events)] == ["lock taken over"]


def test_a_process_that_got_the_number_of_a_dead_one_does_not_hold_its_lock(run: Run) -> None:
    held_by(run, started=1)  # This process's id, but started at boot.

    with hold(run) as lock:
        lock.check()


def test_a_lock_that_is_given_back_leaves_no_file_and_can_be_taken_again(run: Run) -> None:
    for _ in range(2):
        with hold(run) as lock:
            lock.check()
        assert not (run.root / "lock.json").exists()


@pytest.mark.parametrize("clock_of_the_other", [-86400.0, 0.0, 86400.0], ids=["a day behind", "right", "a day ahead"])
def test_a_driver_on_another_machine_that_gives_signs_of_life_is_not_replaced_whatever_its_clock_says(
    run: Run, clock_of_the_other: float
) -> None:
    held_by(run, host="far", place="another boot")
    path, ended = run.root / "lock.json", threading.Event()

    def live() -> None:
        beats = 0
        while not ended.wait(0.02):
            beats += 1
            age(path, -clock_of_the_other - beats / 1000)

    other = threading.Thread(target=live)
    other.start()
    try:
        with pytest.raises(UserError, match="on far"), hold(run):
            pass
    finally:
        ended.set()
        other.join()


@pytest.mark.parametrize("seconds", [-86400.0, 0.0, 86400.0], ids=["in the future", "now", "long ago"])
def test_a_driver_on_another_machine_without_a_sign_of_life_is_replaced_whatever_the_time_of_its_last(
    run: Run, seconds: float
) -> None:
    held_by(run, host="far", place="another boot")
    age(run.root / "lock.json", seconds)

    with hold(run) as lock:
        lock.check()


def test_the_owner_gives_signs_of_life_and_needs_no_room_on_the_disk_for_them(run: Run) -> None:
    with hold(run):
        before, content = (run.root / "lock.json").stat(), read_json(run.root / "lock.json")
        wait_for(lambda: (run.root / "lock.json").stat().st_mtime_ns != before.st_mtime_ns)
        assert (run.root / "lock.json").stat().st_ino == before.st_ino
        assert read_json(run.root / "lock.json") == content


def test_a_driver_that_was_replaced_meanwhile_commits_nothing_and_leaves_the_new_ones_lock(run: Run) -> None:
    with hold(run) as lock:
        held_by(run, host="far", place="another boot")
        with pytest.raises(LockLost, match=r"taken over by process .* on far"):
            lock.check()

    assert read_json(run.root / "lock.json")["host"] == "far"


def test_a_run_directory_that_can_not_be_written_is_named(run: Run) -> None:
    (run.root / ".lock").mkdir()  # Permissions do not stop root, a folder in the way does.

    with pytest.raises(UserError, match=f"can't write the run directory .*{run.id}"), hold(run):
        pass


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline, "did not happen within 20 s"
        time.sleep(0.01)
