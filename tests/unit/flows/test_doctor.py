"""What the doctor says of Ray."""

import pytest

from flows.doctor import Finding, _cluster


def ray(monkeypatch: pytest.MonkeyPatch, **environment: str) -> Finding:
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (finding,) = _cluster()
    return finding


def test_a_cluster_that_anyone_may_use_is_not_fine(monkeypatch: pytest.MonkeyPatch):
    finding = ray(monkeypatch, RAY_ADDRESS="10.0.0.1:6379", RAY_AUTH_MODE="disabled")

    assert not finding.fine
    assert finding.found == "10.0.0.1:6379, open to everyone who reaches its ports"


def test_a_cluster_with_a_token_and_a_local_ray_are_fine(monkeypatch: pytest.MonkeyPatch):
    assert ray(monkeypatch, RAY_ADDRESS="auto", RAY_AUTH_MODE="token").fine
    assert ray(monkeypatch).found == "a local one for the time of each run"
