"""What `make down` ends."""

import subprocess
import time
from pathlib import Path

import psutil

from flows.services import _end, _group

AT_ITS_END = 'trap "sleep 600 & echo \\$! > helper; exit" TERM; touch begun; while :; do sleep 0.05; done'


def test_a_helper_that_a_service_starts_when_it_is_told_to_end_is_ended_too(tmp_path: Path) -> None:
    service = subprocess.Popen(["bash", "-c", AT_ITS_END], cwd=tmp_path, start_new_session=True)
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)

    _end(service.pid, psutil.Process(service.pid).create_time())

    assert (tmp_path / "helper").exists()
    assert list(_group(service.pid)) == []


def test_a_process_that_has_the_number_of_a_service_by_chance_is_left_alone() -> None:
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)

    _end(stranger.pid, created=0.0)

    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()
