import pytest

from trainer.model import tiny_policy


@pytest.fixture(scope="session")
def policy_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("policy") / "tiny"
    tiny_policy.build(folder)
    return str(folder)
