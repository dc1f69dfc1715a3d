"""What is sent to the workers of a cluster that has never seen the project."""

import zipfile
from pathlib import Path

import pytest
from ray._private.runtime_env.packaging import create_package

from tasks.processes.code import code_digest, shipped_code

ROOT = Path(__file__).parents[3]


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A checkout."""
    for name in ("configs", "flows", "tasks", "trainer", "tests", ".venv/lib/tasks", "tasks/__pycache__"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.py").write_text("1")
    return tmp_path


def test_a_cluster_gets_the_root_of_the_packages():
    assert shipped_code({"RAY_ADDRESS": "10.0.0.1:6379"})["runtime_env"]["working_dir"] == str(ROOT)


def test_of_a_checkout_only_the_packages_are_sent_and_no_bytecode(packages: Path, tmp_path: Path):
    excludes = shipped_code({"RAY_ADDRESS": "auto"})["runtime_env"]["excludes"]
    archive = tmp_path / "package.zip"

    create_package(str(packages), archive, include_gitignore=True, excludes=excludes)

    files = [name for name in zipfile.ZipFile(archive).namelist() if not name.endswith("/")]
    assert sorted(files) == ["configs/a.py", "flows/a.py", "tasks/a.py", "trainer/a.py"]


@pytest.mark.parametrize("environment", [{}, {"RAY_ADDRESS": ""}, {"RAY_ADDRESS": "local"}])
def test_a_local_ray_gets_nothing(environment: dict[str, str]):
    assert shipped_code(environment) == {}


def test_the_digest_is_of_code_and_recipes_and_of_where_they_lie(packages: Path):
    seen = {code_digest(packages)}
    for change in ("tasks/a.py", "tasks/b.py", "configs/r.yaml"):
        (packages / change).write_text("2")
        seen.add(code_digest(packages))
    (packages / "tasks" / "b.py").rename(packages / "tasks" / "c.py")
    seen.add(code_digest(packages))

    assert len(seen) == 5


def test_the_digest_is_not_of_anything_else(packages: Path):
    before = code_digest(packages)
    (packages / "tasks" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    (packages / "tests" / "a.py").write_text("2")

    assert code_digest(packages) == before
