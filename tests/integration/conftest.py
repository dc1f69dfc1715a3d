"""A real SGLang server on a tiny policy, started once for the tests that share it, and gone for the next ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from configs import schema
from tasks.engine.engine import Engine
from tasks.server.client import EngineClient
from tests.contract import CONTEXT


@dataclass
class LiveEngine:
    """An engine at a weights version, with folders of two versions and a client."""

    engine: Engine
    folders: dict[int, Path]
    log_dir: Path

    def client(self, version: int = 0) -> EngineClient:
        """Return a client, with the engine brought to a version."""
        return EngineClient(self.engine.publish(self.folders[version], version))


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Two versions of a tiny policy: random weights, sharp enough for seeds and versions to show."""
    import torch

    from trainer.model.tiny_policy import build_model, build_tokenizer

    folders = {}
    for version in (0, 1):
        folders[version] = tmp_path_factory.mktemp(f"weights-{version}")
        model = build_model()
        generator = torch.Generator().manual_seed(version)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.1, generator=generator)
        model.save_pretrained(folders[version])
        build_tokenizer().save_pretrained(folders[version])
    return folders


@pytest.fixture(scope="module")
def live_engine(tiny_weights: dict[int, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEngine]:
    """A running engine. Tests may change its weights or kill its server: ask for a client at the version you need."""
    log_dir = tmp_path_factory.mktemp("engine")
    # With a text that ends responses the server has a tokenizer; requests that name none are answered as without.
    recipe = schema.Recipe(
        name="r", model=schema.Model(context_length=CONTEXT), rollout=schema.Rollout(stop=("\nQuestion:",))
    )
    engine = Engine(0, recipe, log_dir, "cpu")
    engine.start(tiny_weights[0], 0)
    yield LiveEngine(engine, tiny_weights, log_dir)
    engine.stop()
