"""When SGLang runs on our CPU platform, and when it does not."""

import pkgutil
from importlib.metadata import entry_points

import pytest
import torch
from sglang.srt.platforms.interface import SRTPlatform

from tasks.server.launch import CPU_BACKEND
from tasks.sglang_cpu.platform import activate


@pytest.fixture(autouse=True)
def plain_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.delenv("SGLANG_USE_CPU_ENGINE", raising=False)


def test_sglang_finds_the_platform_by_the_name_that_our_servers_ask_for():
    (entry,) = entry_points(group="sglang.srt.platforms", name=CPU_BACKEND)
    assert entry.load() is activate


def test_on_a_plain_cpu_the_platform_is_offered():
    name = activate()
    assert name
    assert issubclass(pkgutil.resolve_name(name), SRTPlatform)


def test_it_steps_aside_for_an_accelerator(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    assert activate() is None


def test_it_steps_aside_for_sglangs_own_cpu_engine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SGLANG_USE_CPU_ENGINE", "1")
    assert activate() is None
