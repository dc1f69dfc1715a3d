"""What is derived for engines that no test can start is at least what the installed SGLang knows."""

import argparse
from pathlib import Path

import pytest
from sglang.srt.environ import envs
from sglang.srt.server_args import ServerArgs

from configs.schema import Engine, Learner, Recipe
from tasks.cluster.devices import Accelerator
from tasks.server.launch import ServerSpec, launch_spec
from tasks.update.environment import ENGINE_CHANNELS


def spec(accelerator: Accelerator, deterministic: bool) -> ServerSpec:
    """A server with all that is ever derived: several GPUs, shared with the learner."""
    engine = Engine(gpus=2, placement="colocated", deterministic=deterministic)
    recipe = Recipe(name="r", engine=engine, learner=Learner(ranks=2, gpus=1))
    return launch_spec(recipe, Path("/m"), 0, "127.0.0.1", 4001, accelerator, 0, Path("/key.yaml"))


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("accelerator", ["nvidia", "amd"])
def test_sglang_knows_every_flag_and_variable(accelerator: Accelerator, deterministic: bool):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    ServerArgs.add_cli_args(parser)
    server = spec(accelerator, deterministic)
    command = server.command[server.command.index("--config") + 2 :]

    _, unknown = parser.parse_known_args(command)

    assert unknown == []
    assert all(hasattr(envs, name) for name in server.env if name.startswith("SGLANG_"))


def test_the_learner_has_as_many_channels_as_a_deterministic_engine():
    assert str(envs.SGLANG_DETERMINISTIC_NCCL_NCHANNELS.get()) == ENGINE_CHANNELS
