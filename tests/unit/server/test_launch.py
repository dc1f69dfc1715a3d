"""How a server is started on each kind of hardware."""

from pathlib import Path

import pytest

from configs.schema import Engine, Evaluation, Learner, Recipe, Rollout
from tasks.cluster.devices import Accelerator
from tasks.cluster.limits import samples_at_once
from tasks.server.launch import ServerSpec, launch_spec


def recipe_of(engine: Engine) -> Recipe:
    """A recipe with an engine, and a learner that can share its GPUs."""
    return Recipe(name="r", engine=engine, learner=Learner(ranks=max(engine.gpus, 1), gpus=min(engine.gpus, 1)))


def spec(accelerator: Accelerator, engine: Engine | None = None, version: int = 3) -> ServerSpec:
    secrets = Path("/tmp/secrets.yaml")
    recipe = recipe_of(engine or Engine())
    return launch_spec(recipe, Path("/models/m"), version, "10.0.0.7", 4001, accelerator, 7, secrets)


@pytest.mark.parametrize("accelerator", ["cpu", "nvidia", "amd"])
def test_every_server_listens_at_one_address_and_reports_its_weights_version(accelerator: Accelerator):
    command = spec(accelerator).command
    assert {"--host=10.0.0.7", "--port=4001", "--model-path=/models/m", "--weight-version=3"} <= set(command)


@pytest.mark.parametrize("accelerator", ["cpu", "nvidia", "amd"])
def test_u14_a_server_has_a_few_tokens_more_than_the_recipe_whatever_the_model_has(accelerator: Accelerator):
    # SGLang takes 2 off for a response and 6 for a prompt; tests/integration asks the real one at each edge.
    found = spec(accelerator)
    assert "--context-length=70" in found.command  # the recipe's 64 and 6
    assert found.env["SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"] == "1"


def test_a_negative_version_is_not_taken_for_a_flag():
    assert "--weight-version=-1" in spec("cpu", version=-1).command


def test_the_key_file_is_passed_the_way_sglang_looks_for_it():
    command = spec("cpu").command
    assert command[command.index("--config") + 1] == "/tmp/secrets.yaml"


def test_ids_go_in_and_come_out():
    assert "--skip-tokenizer-init" in spec("cpu").command


@pytest.mark.parametrize("recipe", [{"data": {"chat_template": "plain"}}, {"rollout": {"stop": ["\n\n"]}}], ids=str)
def test_u06_only_a_server_that_looks_for_texts_has_a_tokenizer(recipe: dict[str, object]):
    loaded = Recipe.model_validate({"name": "r", **recipe})
    found = launch_spec(loaded, Path("/models/m"), 3, "10.0.0.7", 4001, "cpu", 7, Path("/tmp/secrets.yaml"))
    assert "--skip-tokenizer-init" not in found.command


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


@pytest.mark.parametrize("accelerator", ["nvidia", "amd"])
def test_the_graphs_of_a_server_that_shares_its_gpus_give_their_memory_back_too(accelerator: Accelerator):
    assert spec(accelerator, Engine(gpus=1, placement="colocated")).env["SGLANG_MEMORY_SAVER_CUDA_GRAPH"] == "1"
    assert "SGLANG_MEMORY_SAVER_CUDA_GRAPH" not in spec(accelerator, Engine(gpus=1)).env


@pytest.mark.parametrize("accelerator", ["nvidia", "amd"])
def test_gpus_of_an_engine_that_the_learner_left_unequally_full_are_taken(accelerator: Accelerator):
    shared = spec(accelerator, Engine(gpus=2, placement="colocated"))
    assert shared.env["SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK"] == "0"


def test_a_cpu_server_has_no_memory_saver():
    cpu = spec("cpu", Engine(placement="colocated"))
    assert "--enable-memory-saver" not in cpu.command
    assert "SGLANG_MEMORY_SAVER_CUDA_GRAPH" not in cpu.env


@pytest.mark.parametrize(
    ("recipe", "samples"),
    [
        (Recipe(name="a group is a request", rollout=Rollout(samples_per_prompt=16)), 64 * 16 * 2),
        (Recipe(name="a shard an engine", engine=Engine(count=2), rollout=Rollout(samples_per_prompt=16)), 64 * 16),
        (
            Recipe(name="small groups go together", engine=Engine(count=2), rollout=Rollout(samples_per_prompt=2)),
            64 * 8,
        ),
        (Recipe(name="evaluated", engine=Engine(count=2), evaluation=Evaluation(samples_per_prompt=32)), 64 * 32),
        (Recipe(name="few", engine=Engine(count=3, in_flight=4), rollout=Rollout(shards=4)), 4 * 16 * 2),
    ],
    ids=lambda value: value.name if isinstance(value, Recipe) else str(value),
)
def test_an_engine_has_the_requests_of_its_shards_at_once(recipe: Recipe, samples: int):
    assert samples_at_once(recipe) == samples


@pytest.mark.parametrize("accelerator", ["nvidia", "amd"])
def test_graphs_are_captured_for_what_an_engine_has_at_once_up_to_sglangs_own_largest(accelerator: Accelerator):
    few, many = Engine(gpus=1, in_flight=4), Engine(gpus=1, in_flight=64)
    assert "--cuda-graph-max-bs-decode=128" in spec(accelerator, few).command  # 2 shards x 4 requests x 16 samples
    assert "--cuda-graph-max-bs-decode=512" in spec(accelerator, many).command


@pytest.mark.parametrize("accelerator", ["nvidia", "amd"])
def test_all_reduce_sampler_and_number_format_are_left_to_sglang(accelerator: Accelerator):
    flags = ("--disable-custom-all-reduce", "--sampling-backend", "--quantization", "--kv-cache-dtype")
    assert not [word for word in spec(accelerator, Engine(gpus=2)).command if word.startswith(flags)]


def test_a_deterministic_amd_server_uses_triton_attention_and_no_aiter():
    amd = spec("amd", Engine(gpus=1, deterministic=True))
    assert "--attention-backend=triton" in amd.command
    assert amd.env["SGLANG_USE_AITER"] == "0"


def test_a_fast_amd_server_uses_aiter_and_the_attention_that_sglang_chooses():
    amd = spec("amd", Engine(gpus=1, deterministic=False))
    assert not any(word.startswith("--attention-backend") for word in amd.command)
    assert amd.env["SGLANG_USE_AITER"] == "1"


def test_an_amd_server_adds_up_over_its_gpus_without_rounding_whatever_its_image_says():
    assert spec("amd", Engine(gpus=2)).env["ROCM_QUICK_REDUCE_QUANTIZATION"] == "NONE"


def test_seeds_are_honoured_only_where_the_recipe_asks():
    assert "--enable-deterministic-inference" in spec("cpu", Engine(deterministic=True)).command
    assert "--enable-deterministic-inference" not in spec("cpu", Engine(deterministic=False)).command
