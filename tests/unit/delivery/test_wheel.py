"""A wheel holds what the packages read beside their code: recipes and the deployments."""

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the content of a wheel that was built from what git knows."""
    checkout, site = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("site")
    files = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, check=True, text=True).stdout
    wanted = [name for name in files.split("\0") if name and (ROOT / name).is_file()]
    subprocess.run(["tar", "-C", ROOT, "-cf", checkout / "all.tar", *wanted], check=True)
    subprocess.run(["tar", "-C", checkout, "-xf", checkout / "all.tar"], check=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        site,
        checkout,
    ]
    subprocess.run(command, check=True, cwd=checkout)
    (wheel,) = site.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    return site


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Callable[[str], str]:
    """Run code that finds the wheel and not the checkout."""

    def call(code: str) -> str:
        ours = f"import sys; sys.path.insert(0, {str(installed)!r})\n"
        command = [sys.executable, "-I", "-c", ours + code]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, text=True).stdout.strip()

    return call


def test_an_installed_wheel_finds_every_recipe(run: Callable[[str], str], installed: Path):
    found = run(
        "from configs.loader import RECIPES; print(RECIPES, *sorted(path.stem for path in RECIPES.glob('*.yaml')))"
    )

    assert found.split()[0] == str(installed / "configs")
    assert found.split()[1:] == sorted(path.stem for path in (ROOT / "configs").glob("*.yaml"))


def test_an_installed_wheel_plans_its_recipes(run: Callable[[str], str]):
    assert "engine 0" in run("from flows.cli import app; app(['plan', 'r1'], standalone_mode=False)")


def test_an_installed_wheel_finds_its_deployments(run: Callable[[str], str], installed: Path):
    found = run("from flows.services import DEPLOYMENTS, _local_deployments; print(DEPLOYMENTS, *_local_deployments())")

    assert found.split() == [str(installed / "flows" / "prefect.yaml"), "r1", "quickstart", "smollm2"]


def test_a_wheel_has_all_packages_and_the_door_for_sglang(installed: Path):
    code = {
        path.relative_to(ROOT)
        for layer in ("configs", "flows", "tasks", "trainer")
        for path in (ROOT / layer).rglob("*.py")
    }
    (metadata,) = installed.glob("*.dist-info/entry_points.txt")

    assert {path for path in code if not (installed / path).is_file()} == set()
    assert "rl_post_cpu = tasks.sglang_cpu.platform:activate" in metadata.read_text()
