"""The command line and environment of an SGLang server, for each kind of hardware."""

import sys
from dataclasses import dataclass
from pathlib import Path

from configs.schema import Engine, Recipe
from tasks.cluster.devices import CUDA, HIP, Accelerator, cpu_environment
from tasks.cluster.limits import samples_at_once

CPU_BACKEND = "rl_post_cpu"
"""Name of our platform, an entry point of this package, and of its attention backend."""
LARGEST_GRAPH = 512
"""Largest batch of SGLang's CUDA graphs on GPUs with the most memory (its arg_groups/memory_hook.py, 0.5.23)."""


@dataclass(frozen=True)
class ServerSpec:
    """A server to start: its command, and what its environment has beyond the caller's."""

    command: list[str]
    env: dict[str, str]


def launch_spec(
    recipe: Recipe,
    weights_dir: Path,
    version: int,
    host: str,
    port: int,
    accelerator: Accelerator,
    seed: int,
    secrets_file: Path,
) -> ServerSpec:
    """Derive how a server is started.

    Args:
        recipe: The recipe.
        weights_dir: Model folder in Hugging Face format, complete.
        version: Weights version that the server reports at its start.
        host: Address that the server listens at.
        port: Port there.
        accelerator: Hardware that the server runs on.
        seed: Seed of the server's own random choices; a sample's seed comes with its request.
        secrets_file: YAML file with the server's API key, which must not show in a command line.
    """
    engine, model = recipe.engine, recipe.model
    flags: dict[str, object] = {
        "model-path": weights_dir,
        "weight-version": version,
        "host": host,
        "port": port,
        "dtype": model.dtype,
        "context-length": model.served_context,
        "random-seed": seed,
        "log-level": "warning",  # at `info` the server logs all its settings, the key among them
    }
    # Ids in, ids out. Only to find a text that ends a response a server needs the model's tokenizer.
    switches = ["skip-server-warmup"] if recipe.stop else ["skip-tokenizer-init", "skip-server-warmup"]
    if accelerator == "cpu":
        flags |= {"device": "cpu", "attention-backend": CPU_BACKEND, "sampling-backend": "pytorch"}
        flags |= {"max-total-tokens": engine.max_total_tokens}
        switches += ["disable-overlap-schedule", "sleep-on-idle"]
    else:
        flags |= {"tp-size": max(engine.gpus, 1), "mem-fraction-static": engine.memory_fraction}
        flags |= {"cuda-graph-max-bs-decode": min(samples_at_once(recipe), LARGEST_GRAPH)}
    if accelerator == "amd" and engine.deterministic:
        flags |= {"attention-backend": "triton"}  # AITER's results depend on what else is in the batch
    if engine.colocated:
        switches.append("enable-memory-saver")  # else its memory can't be released
    if engine.deterministic:
        switches.append("enable-deterministic-inference")
    return ServerSpec(
        command=[
            *(sys.executable, "-m", "sglang.launch_server", "--config", str(secrets_file)),
            *(f"--{name}={value}" for name, value in flags.items()),  # with `=`, because a version may be negative
            *(f"--{name}" for name in switches),
        ],
        env=_environment(engine, accelerator),
    )


def _environment(engine: Engine, accelerator: Accelerator) -> dict[str, str]:
    # The weights are on disk. Where the recipe uses a model's whole context, a server has a few tokens more than that,
    # which no sample reaches.
    shared = {"HF_HUB_OFFLINE": "1", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}
    if accelerator == "cpu":
        hidden = {CUDA: "", HIP: ""}  # on a machine with GPUs too
        return shared | hidden | {"SGLANG_PLATFORM": CPU_BACKEND} | cpu_environment(engine.threads)
    if engine.colocated:
        # Graphs release their memory too, and GPUs may differ in how much memory the learner left free.
        shared |= {"SGLANG_MEMORY_SAVER_CUDA_GRAPH": "1", "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0"}
    if accelerator == "amd":
        # By default, SGLang's image for AMD rounds large sums over GPUs to 8 bits.
        exact = {"ROCM_QUICK_REDUCE_QUANTIZATION": "NONE"}
        return shared | exact | {"SGLANG_USE_AITER": "0" if engine.deterministic else "1"}
    return shared
