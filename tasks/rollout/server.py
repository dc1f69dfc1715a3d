"""The command line and environment of an SGLang server, for each kind of hardware."""

import sys
from dataclasses import dataclass
from pathlib import Path

from configs.schema import Engine, Model
from tasks.runtime.accelerator import Accelerator, cpu_environment
from tasks.runtime.devices import CUDA, HIP

CPU_BACKEND = "rl_post_cpu"
"""Name of our platform, an entry point of this package, and of its attention backend."""


@dataclass(frozen=True)
class ServerSpec:
    """A server to start: its command, and what its environment has beyond the caller's."""

    command: list[str]
    env: dict[str, str]


def launch_spec(
    engine: Engine,
    model: Model,
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
        engine: The recipe's section.
        model: The recipe's section.
        weights_dir: Model folder in Hugging Face format, complete.
        version: Weights version that the server reports at its start.
        host: Address that the server listens at.
        port: Port there.
        accelerator: Hardware that the server runs on.
        seed: Seed of the server's own random choices; a sample's seed comes with its request.
        secrets_file: YAML file with the server's API key, which must not show in a command line.
    """
    flags: dict[str, object] = {
        "model-path": weights_dir,
        "weight-version": version,
        "host": host,
        "port": port,
        "dtype": model.dtype,
        "context-length": model.context_length,
        "random-seed": seed,
        "log-level": "warning",  # at `info` the server logs all its settings, the key among them
    }
    switches = ["skip-tokenizer-init", "skip-server-warmup"]  # ids in, ids out
    if accelerator == "cpu":
        flags |= {"device": "cpu", "attention-backend": CPU_BACKEND, "sampling-backend": "pytorch"}
        flags |= {"max-total-tokens": engine.max_total_tokens}
        switches += ["disable-overlap-schedule", "sleep-on-idle"]
    else:
        flags |= {"tp-size": max(engine.gpus, 1), "mem-fraction-static": engine.memory_fraction}
    if accelerator == "amd" and engine.deterministic:
        flags |= {"attention-backend": "triton"}  # AITER's kernels depend on what else is in the batch
    if engine.colocated:
        switches.append("enable-memory-saver")  # else its memory can't be released
    if engine.deterministic:
        switches.append("enable-deterministic-inference")
    return ServerSpec(
        command=[
            *(sys.executable, "-m", "sglang.launch_server", "--config", str(secrets_file)),
            *(f"--{name}={value}" for name, value in flags.items()),  # with `=`, for a version may be negative
            *(f"--{name}" for name in switches),
        ],
        env=_environment(engine, accelerator),
    )


def _environment(engine: Engine, accelerator: Accelerator) -> dict[str, str]:
    shared = {"HF_HUB_OFFLINE": "1"}  # the weights are on disk
    if accelerator == "cpu":
        hidden = {CUDA: "", HIP: ""}  # on a machine with GPUs too
        return shared | hidden | {"SGLANG_PLATFORM": CPU_BACKEND} | cpu_environment(engine.threads)
    if accelerator == "amd":
        return shared | {"SGLANG_USE_AITER": "0" if engine.deterministic else "1"}
    return shared
