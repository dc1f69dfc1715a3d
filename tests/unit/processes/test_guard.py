"""Nothing that the guard runs outlives its owner."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

GUARD = [sys.executable, "-m", "tasks.processes.guard", "2", "--"]
# A command with a child of its own, both of which write their process ids and sleep.
FAMILY = textwrap.dedent("""
    import os, signal, subprocess, sys, time
    if sys.argv[2] == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    folder, kind, depth = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if depth:
        subprocess.Popen([sys.executable, __file__, folder, kind, str(depth - 1)])
    open(os.path.join(folder, f"{os.getpid()}.pid"), "w").close()
    time.sleep(0 if kind == "brief" and depth else 60)
    sys.exit(7)
""")


@pytest.fixture
def family(tmp_path: Path) -> list[str]:
    script = tmp_path / "family.py"
    script.write_text(FAMILY)
    return [sys.executable, str(script), str(tmp_path)]


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline, "did not happen within 20 s"
        time.sleep(0.02)


def members(folder: Path) -> list[int]:
    return [int(path.stem) for path in folder.glob("*.pid")]


def wait_until_gone(pids: list[int]) -> None:
    wait_for(lambda: not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids))


def start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*GUARD, *command], stdin=subprocess.PIPE)


@pytest.mark.parametrize("code", [0, 3])
def test_the_commands_exit_code_is_passed_on(code: int):
    assert start([sys.executable, "-c", f"raise SystemExit({code})"]).wait() == code


def test_a_command_that_a_signal_ended_exits_as_in_a_shell():
    assert start(["sh", "-c", "kill -KILL $$"]).wait() == 128 + signal.SIGKILL


def test_a_command_that_can_not_be_run_fails():
    assert subprocess.run([*GUARD, "/no/such/program"], stdin=subprocess.PIPE, capture_output=True).returncode != 0


def test_what_a_command_leaves_behind_is_ended(family: list[str], tmp_path: Path):
    guard = start([*family, "brief", "1"])
    assert guard.wait() == 7
    wait_until_gone(members(tmp_path))


@pytest.mark.parametrize("kind", ["polite", "stubborn"])
def test_a_closed_lifeline_ends_the_whole_family(family: list[str], tmp_path: Path, kind: str):
    guard = start([*family, kind, "2"])
    wait_for(lambda: len(members(tmp_path)) == 3)
    assert guard.stdin
    guard.stdin.close()
    assert guard.wait() == 128 + (signal.SIGTERM if kind == "polite" else signal.SIGKILL)
    wait_until_gone(members(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_guard_ends_the_whole_family(family: list[str], tmp_path: Path, number: signal.Signals):
    guard = start([*family, "polite", "2"])
    wait_for(lambda: len(members(tmp_path)) == 3)
    guard.send_signal(number)
    guard.wait()
    wait_until_gone(members(tmp_path))


@pytest.mark.parametrize("also_the_guard", [False, True], ids=["owner", "owner and guard"])
def test_kill_9_of_the_owner_leaves_nothing(family: list[str], tmp_path: Path, also_the_guard: bool):
    source = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE); time.sleep(60)"
    owner = subprocess.Popen([sys.executable, "-c", source, *GUARD, *family, "polite", "2"], start_new_session=True)
    wait_for(lambda: len(members(tmp_path)) == 3)
    (guard,) = psutil.Process(owner.pid).children()
    processes = [process.pid for process in psutil.Process(owner.pid).children(recursive=True)]
    if also_the_guard:  # as Ray does with the children of a worker that dies
        os.kill(guard.pid, signal.SIGKILL)
    owner.kill()
    owner.wait()
    wait_until_gone([*members(tmp_path), *processes])
