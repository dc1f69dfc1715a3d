"""What this machine has, without PyTorch where there is no driver of GPUs."""

from pathlib import Path

import pytest

from tasks.processes import machine


def test_without_a_driver_there_is_no_gpu_and_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "DRIVERS", ("/no/such/device",))
    monkeypatch.setitem(__import__("sys").modules, "torch", None)  # An import of it would fail.

    assert machine.local_gpus() == 0
    assert machine.describe_gpus() is None
    machine.check_devices()
    cluster = machine.local_cluster()
    assert (cluster.count, cluster.gpus, cluster.accelerator) == (1, 0, "cpu")
    assert cluster.node.memory > 2**30


def test_with_a_driver_pytorch_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch

    (tmp_path / "kfd").touch()
    monkeypatch.setattr(machine, "DRIVERS", (str(tmp_path / "kfd"),))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index=0: "NVIDIA H100 80GB HBM3")

    assert machine.describe_gpus() == "2 x NVIDIA NVIDIA H100 80GB HBM3"
    cluster = machine.local_cluster()
    assert (cluster.gpus, cluster.gpu and cluster.gpu.name) == (2, "H100")
