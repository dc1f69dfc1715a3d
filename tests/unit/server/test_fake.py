"""The fake server passes what the real one passes in tests/integration/test_engine.py."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest
import yaml

from configs.schema import Model, Recipe
from tasks.processes.network import LOOPBACK, reserved_port, url_of
from tasks.server.client import Endpoint, EngineClient, EngineUnavailable
from tasks.server.launch import launch_spec
from tests import contract
from tests.contract import *  # noqa: F403 - its tests
from trainer.model.tiny_policy import build

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[contract.Server]:
    """The fake, started as an engine starts the real one."""
    home = tmp_path_factory.mktemp("fake")
    build(home / "sound")
    contract.break_weights(copytree(home / "sound", home / "broken"))
    (home / "secrets.yaml").write_text(yaml.safe_dump({"api-key": "secret"}))
    recipe = Recipe(name="r", model=Model(context_length=contract.CONTEXT))
    with reserved_port(LOOPBACK) as port:
        spec = launch_spec(recipe, home / "sound", 0, LOOPBACK, port, "cpu", 0, home / "secrets.yaml")
        path = os.pathsep.join([str(ROOT / "tests" / "faults" / "fake"), str(ROOT)])
        process = subprocess.Popen(spec.command, env=os.environ | spec.env | {"PYTHONPATH": path})
    endpoint = Endpoint(url_of(LOOPBACK, port), "secret", timeout=60)
    try:
        with EngineClient(endpoint, attempts=1) as client:
            while process.poll() is None:
                try:
                    client.weights_version()
                    break
                except EngineUnavailable:
                    time.sleep(0.05)
        yield contract.Server(endpoint, (home / "sound", 0), home / "broken")
    finally:
        process.terminate()
        process.wait()
