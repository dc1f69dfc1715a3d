"""Only the driver logs to MLflow: a store that many processes wrote at once would meet locks."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WORKERS = [
    path
    for folder in ("tasks", "trainer")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != ROOT / "tasks" / "tracking" / "tracker.py"
]


@pytest.mark.parametrize("path", WORKERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_runs_on_workers_does_not_log(path: Path) -> None:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}

    assert not {module for module in modules if module and ("mlflow" in module or module.endswith("tracking.tracker"))}
