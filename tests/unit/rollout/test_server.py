"""How a server is started on each kind of hardware."""

from pathlib import Path

import pytest

from configs.schema import Engine, Model
from tasks.rollout.server import ServerSpec, launch_spec
from tasks.runtime.accelerator import Accelerator


def spec(accelerator: Accelerator, engine: Engine | None = None, version: int = 3) -> ServerSpec:
    secrets = Path("/tmp/secrets.yaml")
    return launch_spec(
        engine or Engine(), Model(), Path("/models/m"), version, "10.0.0.7", 4001, accelerator, 7, secrets
    )


@pytest.mark.parametrize("accelerator", ["cpu", "nvidia", "amd"])
def test_every_server_listens_at_one_address_and_reports_its_weights_version(accelerator: Accelerator):
    command = spec(accelerator).command
    assert {"--host=10.0.0.7", "--port=4001", "--model-path=/models/m", "--weight-version=3"} <= set(command)


def test_a_negative_version_is_not_taken_for_a_flag():
    assert "--weight-version=-1" in spec("cpu", version=-1).command


def test_the_key_file_is_passed_the_way_sglang_looks_for_it():
    command = spec("cpu").command
    assert command[command.index("--config") + 1] == "/tmp/secrets.yaml"


def test_ids_go_in_and_come_out():
    assert "--skip-tokenizer-init" in spec("cpu").command


def test_a_cpu_server_runs_on_our_platform_with_its_own_threads_and_one_code_path_of_mkl():
    cpu = spec("cpu", Engine(threads=3, max_total_tokens=512))
    assert {"--device=cpu", "--attention-backend=rl_post_cpu", "--max-total-tokens=512"} <= set(cpu.command)
    assert cpu.env["OMP_NUM_THREADS"] == "3"
    assert cpu.env["OMP_WAIT_POLICY"] == "passive"
    assert cpu.env["MKL_CBWR"] == "AVX2"


def test_gpus_of_an_engine_become_tensor_parallelism():
    command = spec("nvidia", Engine(gpus=4, memory_fraction=0.5)).command
    assert {"--tp-size=4", "--mem-fraction-static=0.5"} <= set(command)
    assert not any("cpu" in word for word in command)


@pytest.mark.parametrize("accelerator", ["nvidia", "amd"])
def test_a_server_that_shares_its_gpus_can_release_their_memory(accelerator: Accelerator):
    assert "--enable-memory-saver" in spec(accelerator, Engine(gpus=1, placement="colocated")).command
    assert "--enable-memory-saver" not in spec(accelerator, Engine(gpus=1)).command


def test_a_cpu_server_has_no_memory_saver():
    assert "--enable-memory-saver" not in spec("cpu", Engine(placement="colocated")).command


def test_a_deterministic_amd_server_uses_triton_attention_and_no_aiter():
    amd = spec("amd", Engine(gpus=1, deterministic=True))
    assert "--attention-backend=triton" in amd.command
    assert amd.env["SGLANG_USE_AITER"] == "0"


def test_a_fast_amd_server_uses_aiter_and_the_attention_that_sglang_chooses():
    amd = spec("amd", Engine(gpus=1, deterministic=False))
    assert not any(word.startswith("--attention-backend") for word in amd.command)
    assert amd.env["SGLANG_USE_AITER"] == "1"


def test_seeds_are_honoured_only_where_the_recipe_asks():
    assert "--enable-deterministic-inference" in spec("cpu", Engine(deterministic=True)).command
    assert "--enable-deterministic-inference" not in spec("cpu", Engine(deterministic=False)).command
