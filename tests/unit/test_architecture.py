"""Imports go one way, between the layers and between the rooms of each; heavy packages stay where they belong.

The rooms and their order are those of the table in docs/how-it-works.md: a room may import what stands above it there.
Imports within functions count too.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ["configs", "trainer", "tasks", "flows"]
HEAVY = {"torch", "transformers", "ray", "prefect", "prefect_ray", "mlflow", "sglang"}
MAY_IMPORT = {
    "configs": set[str](),
    "trainer": {"torch", "transformers"},
    "tasks.records": set[str](),
    "tasks.run": set[str](),
    "tasks.cluster": set[str](),
    "tasks.processes": {"ray", "prefect", "torch"},
    "tasks.orchestrator": {"ray", "prefect", "prefect_ray"},
    "tasks.tracking": {"mlflow"},
    "tasks.server": set[str](),
    "tasks.sglang_cpu": {"torch", "sglang"},
    "tasks.weights": {"torch", "sglang"},
    "tasks.dataset": {"transformers"},
    "tasks.update": {"torch"},
    "flows": {"prefect"},
}
"""Heavy packages that a room imports; other rooms import none."""
DOOR = ROOT / "tasks" / "__init__.py"  # It holds no room, only rooms.
FILES = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py")) if path != DOOR]
LONGEST = 400
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))


def rooms() -> list[str]:
    """The rooms by the table of the page, in its order: lower ones first."""
    page = (ROOT / "docs" / "how-it-works.md").read_text()
    return re.findall(r"^\| `([\w.]+)` \|", page, flags=re.MULTILINE)


def room_of(module: str) -> str:
    """The room that a module is in: the longest name of the table that it begins with."""
    return max((room for room in rooms() if f"{module}.".startswith(f"{room}.")), key=len)


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports, wherever it does so."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@each_file
def test_a_file_imports_only_rooms_that_stand_before_its_own(path: Path) -> None:
    order, own = rooms(), room_of(name_of(path))
    used = {room_of(module) for module in imported(path) if module.split(".")[0] in LAYERS}

    assert {room for room in used if order.index(room) > order.index(own)} == set()


@each_file
def test_heavy_packages_stay_in_their_rooms(path: Path) -> None:
    name = name_of(path)
    allowed = next((MAY_IMPORT[room] for room in MAY_IMPORT if f"{name}.".startswith(f"{room}.")), set[str]())

    assert {module.split(".")[0] for module in imported(path)} & HEAVY <= allowed


def test_every_folder_with_code_is_a_room_with_a_door() -> None:
    folders = {path.parent for path in FILES}

    assert {name_of(folder / "__init__.py") for folder in folders} <= set(rooms())
    for folder in folders:
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text())), folder


@each_file
def test_a_file_can_be_held_in_mind(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


def loaded_by(code: str) -> set[str]:
    """The top-level packages that are loaded after some code ran in a fresh interpreter."""
    show = "import sys; print(*{name.split('.')[0] for name in sys.modules})"
    command = [sys.executable, "-c", f"{code}\n{show}"]
    return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import configs.schema, configs.loader; configs.loader.load_recipe('r1')",
        "import flows.cli",
        "from flows.plan import launch_plan; from configs.loader import load_recipe\n"
        "from tasks.cluster.machines import parse_cluster\n"
        "launch_plan(load_recipe('r1', gpus=2), parse_cluster('1x8:H100'))",
        "import flows.checks, flows.runs, flows.doctor",
    ],
    ids=["a recipe is loaded", "the command line is there", "a plan is made", "commands look at what there is"],
)
def test_no_heavy_package_is_loaded_where(code: str) -> None:
    assert loaded_by(code) & HEAVY == set()


def test_the_flow_is_loaded_without_pytorch() -> None:
    assert loaded_by("import flows.rl_post") & HEAVY == {"ray", "prefect", "prefect_ray", "mlflow"}


def test_no_import_touches_the_environment_or_starts_a_thread() -> None:
    """Other packages set some variables when they are imported: those are imported before."""
    modules = [name_of(path) for path in FILES if "sglang_cpu" not in path.parts]
    code = (
        "import os, importlib, threading\n"
        "import prefect_ray, mlflow, transformers, peft, datasets, reasoning_gym, math_verify, sglang.srt.utils\n"
        "import prefect.testing.utilities, mlflow.system_metrics.system_metrics_monitor, torch.distributed.fsdp\n"
        f"for module in {modules}:\n"
        "    before = dict(os.environ), threading.active_count()\n"
        "    importlib.import_module(module)\n"
        "    assert before == (dict(os.environ), threading.active_count()), module\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-2000:]
