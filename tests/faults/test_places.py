"""Bad places for a run: each ends in a clear error, and what was there before is as it was."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from configs.errors import UserError
from configs.loader import load_recipe
from tasks.records.samples import SCORED, read_samples, write_samples
from tasks.run import ledger
from tasks.run.directory import Run
from tasks.run.ledger import commit, committed_steps, create_run, open_run, read_commit
from tasks.run.resume import check_resume
from tasks.run.verify import verify
from trainer.files import sha256

LIMIT = 64 * 1024  # Bytes that a file may have: the system refuses the rest, as a full disk does.
WRITERS = {
    "checkpoint": """
        import torch
        from trainer.state import checkpoint
        checkpoint.save(target, {"weight": torch.zeros(100_000)}, version=20, run="r")
    """,
    "weights": """
        from trainer.model import tiny_policy
        tiny_policy.build(target)
    """,
    "samples": """
        from tasks.records.samples import ROLLOUT, write_samples
        write_samples(target, [{"response_ids": [index * 7919 % 65536 for index in range(100_000)]}], ROLLOUT)
    """,
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with a committed step."""
    run = create_run(tmp_path, load_recipe("r1", ["steps=3"]))
    write_samples(run.step_file(1, "scored-00.parquet"), [{"step": 1, "reward": 1.0}], SCORED)
    commit(run, 1, {"reward/mean": 0.5})
    return run


def contents(run: Run) -> dict[str, str]:
    return {str(path.relative_to(run.root)): sha256(path) for path in run.root.rglob("*") if path.is_file()}


def little_room() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))


@pytest.mark.parametrize("what", WRITERS)
def test_a_file_for_which_there_is_no_room_is_named_and_the_run_is_as_it_was(run: Run, what: str) -> None:
    before, target = contents(run), run.root / "checkpoints" / "000020"
    target.parent.mkdir()
    script = f"import sys\nfrom pathlib import Path\ntarget = Path(sys.argv[1])\n{textwrap.dedent(WRITERS[what])}"

    writer = subprocess.run(
        [sys.executable, "-c", script, target], preexec_fn=little_room, capture_output=True, text=True
    )

    assert f"UserError: can't write {target}: File too large. What was written before is intact" in writer.stderr
    assert list(target.parent.iterdir()) == []
    assert contents(run) == before


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="only root mounts")
def test_a_full_disk_refuses_the_commit_and_takes_it_when_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("this machine mounts nothing")
    try:
        run = create_run(disk, load_recipe("r1"))
        commit(run, 1, {"reward/mean": 0.5})
        filler = disk / "filler"
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(b"0" * 2**20)

        with pytest.raises(UserError, match=r"can't write .*000002/commit\.json: No space left on device"):
            commit(run, 2, {"reward/mean": 0.6})
        assert committed_steps(run) == [1] and read_commit(run, 1)["metrics"] == {"reward/mean": 0.5}

        filler.unlink()
        commit(run, 2, {"reward/mean": 0.6})
        assert committed_steps(run) == [1, 2]

        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(UserError, match=r"can't write .*000003/commit\.json: Read-only file system"):
            commit(run, 3, {})
        assert verify(open_run(disk, run.id)) == ["weights/000000 is missing"]
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_clock_that_is_set_back_changes_no_order(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read_commit(run, 1)["time"]
    monkeypatch.setattr(ledger, "time_ns", lambda: (first - 86_400_000) * 1_000_000)

    commit(run, 2, {"reward/mean": 0.6})

    assert read_commit(run, 2)["time"] == first - 86_400_000
    assert committed_steps(run) == [1, 2]
    assert check_resume(run, []).recipe == run.recipe


def test_samples_that_were_cut_stop_a_resume_that_needs_them(run: Run) -> None:
    samples = run.step_file(1, "scored-00.parquet")
    samples.write_bytes(samples.read_bytes()[:-7])

    with pytest.raises(UserError, match=r"can't go on: steps/000001/scored-00\.parquet is damaged"):
        check_resume(run, [])


def test_a_strangers_folder_is_left_alone(run: Run) -> None:
    for folder in ("steps/notes", "checkpoints/old", "mine"):
        (run.root / folder).mkdir(parents=True)
        (run.root / folder / "kept.txt").write_text("mine")

    again = open_run(run.home, run.id)
    commit(again, 2, {})

    assert committed_steps(again) == [1, 2] and again.checkpoints() == []
    assert [path.read_text() for path in run.root.rglob("kept.txt")] == ["mine"] * 3
    assert read_samples([run.step_file(1, "scored-00.parquet")])[0]["reward"] == 1.0
