"""The GPUs that Ray gave the process that asks, and no others visible to it."""

import os
from collections.abc import MutableMapping

import ray

from tasks.cluster.devices import CUDA, Accelerator, device_environment


def show_own_devices(accelerator: Accelerator, environment: MutableMapping[str, str] = os.environ) -> None:
    """Leave an actor, and the server that it starts, only the GPUs that Ray gave it, before it first needs one.

    Ray does so itself, but for nodes where RAY_EXPERIMENTAL_NOSET_…_VISIBLE_DEVICES is set: there, every process would
    take the first GPU. An actor that holds none, such as a rank on an engine's GPU, is left as it is.
    """
    given = ray.get_runtime_context().get_accelerator_ids()["GPU"] if ray.is_initialized() else []
    if not given:
        return
    if accelerator == "amd":
        environment.pop(CUDA, None)  # another name of what is set now
    environment.update(device_environment(sorted(given, key=lambda name: (len(name), name)), accelerator))
