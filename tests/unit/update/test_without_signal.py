"""A step that nothing could be learnt from is told of once, with what to look at."""

from pathlib import Path

from configs.loader import load_recipe
from tasks.run.events import read_events
from tasks.run.ledger import create_run
from tasks.update.task import _note_without_signal


def test_u27_a_run_is_warned_once(tmp_path: Path) -> None:
    run = create_run(tmp_path, load_recipe("r1"))

    for step in (3, 4, 9):
        _note_without_signal(run, step, [{"status": "wrong"}, {"status": "error"}, {"status": "wrong"}])

    (event,) = read_events(run.events)
    assert (event["event"], event["step"]) == ("step without signal", 3)
    assert "reward/accuracy" in event["why"] and "reward/status" in event["why"]
    assert "2 wrong, 1 error" in event["why"]
