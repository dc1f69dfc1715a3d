"""The page for those who come from another tool has our settings as they are, and TRL's as they are installed.

TRL's files are read, not imported: that takes half a minute.
"""

import ast
import re
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from configs.loader import read_recipe
from configs.papers import value_of
from configs.schema import Recipe
from trainer.algorithm.advantages import STD_EPSILON

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "from-other-tools.md").read_text()
TABLES = {"verl": 40, "TRL": 35, "OpenRLHF": 35, "slime and Miles": 35, "SkyRL": 35, "NeMo-RL": 25}
"""The page's tables, and how many lines each has at the least."""
SPAN = re.compile(r"`([^`]+)`")
OURS = Recipe(name="defaults")
SECTIONS = tuple(f"{key}." for key in Recipe.model_fields)


class Line(NamedTuple):
    """A line of a table: names and values as they stand in the backticks of its cells."""

    theirs: list[str]
    there: list[str]
    recipe: list[str]
    here: list[str]
    note: str


def section(page: str, title: str) -> str:
    return page.split(f"\n## {title}\n")[1].split("\n## ")[0]


def lines(text: str) -> list[Line]:
    """The lines of the section's table below its head."""
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows]
    return [Line(*(SPAN.findall(cell) for cell in row[:4]), note=row[4]) for row in cells]


def false_of(page: str) -> Iterator[str]:
    """What the page's tables say of the recipe that isn't so."""
    for title in TABLES:
        for line in lines(section(page, title)):
            if len(line.recipe) != len(line.here):
                yield f"{title}: {line.recipe} has {len(line.here)} defaults"
            for setting, here in zip(line.recipe, line.here, strict=False):
                try:
                    default = plain(value_of(OURS, setting))
                except AttributeError:
                    yield f"{title}: there is no setting {setting}"
                    continue
                if yaml.safe_load(here) != default:
                    yield f"{title}: {setting} is {default} by default, not {here}"


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def trl_defaults() -> dict[str, Any]:
    """The fields of GRPOConfig and of what it is built on, with their defaults."""
    defaults: dict[str, Any] = {}
    files = {"transformers": ["training_args.py"], "trl": ["trainer/base_config.py", "trainer/grpo_config.py"]}
    for package, names in files.items():
        found = find_spec(package)
        assert found
        assert found.origin
        for name in names:
            for node in ast.walk(ast.parse((Path(found.origin).parent / name).read_text())):
                if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call):
                    given = [word.value for word in node.value.keywords if word.arg == "default"]
                    if given and not isinstance(given[0], ast.Name | ast.Attribute):
                        defaults[ast.unparse(node.target)] = ast.literal_eval(given[0])
    return defaults


def test_each_setting_and_each_default_is_ours():
    assert not list(false_of(PAGE))


@pytest.mark.parametrize(("title", "least"), TABLES.items())
def test_each_tool_has_its_table(title: str, least: int):
    table = lines(section(PAGE, title))
    assert len(table) >= least
    assert all(line.theirs for line in table)
    told = {setting for line in table for setting in line.recipe}
    assert told >= {
        "rollout.prompts_per_step",
        "rollout.samples_per_prompt",
        "rollout.max_response_tokens",
        "rollout.temperature",
        "algorithm.advantage",
        "algorithm.aggregation",
        "algorithm.clip_low",
        "algorithm.clip_high",
        "algorithm.kl.coefficient",
        "algorithm.kl.estimator",
        "algorithm.correction.weight",
        "optimizer.learning_rate",
        "learner.checkpoint_every",
        "evaluation.every",
        "engine.placement",
    }


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("| `algorithm.clip_high` | `0.28` |", "| `algorithm.clip_high` | `0.2` |"),
        ("| `algorithm.clip_low` | `0.2` |", "| `algorithm.clip_lower` | `0.2` |"),
        ("| `optimizer.betas` | `[0.9, 0.95]` |", "| `optimizer.betas` | `[0.9, 0.999]` |"),
        ("| `learner.lora` | `null` |", "| `learner.lora` | |"),
    ],
)
def test_a_line_that_is_false_is_found(true: str, false: str):
    assert true in PAGE
    assert list(false_of(PAGE.replace(true, false)))


def overrides() -> list[list[str]]:
    """What the page writes as `key=value`, one list of them a span."""
    return [span.split() for span in SPAN.findall(PAGE) if "=" in span]


@pytest.mark.parametrize("given", overrides(), ids=" ".join)
def test_what_the_page_writes_as_an_override_can_be_given(given: list[str], tmp_path: Path):
    path = tmp_path / "defaults.yaml"
    path.write_text("name: defaults")
    assert read_recipe(path, given) != OURS


def test_each_setting_in_a_note_or_in_the_text_is_one_of_ours():
    names = re.sub(r"^\|[^|]*\|", "|", PAGE.split("\n## ", 1)[1], flags=re.MULTILINE)
    named = {span for span in SPAN.findall(names) if span.startswith(SECTIONS) and "=" not in span}
    assert len(named) > 40
    for setting in named:
        value_of(OURS, setting)


def test_the_numbers_in_the_text_are_ours():
    text = " ".join(section(PAGE, "What surprises most").split())
    optimizer, rollout, algorithm = OURS.optimizer, OURS.rollout, OURS.algorithm
    for said, ours in (
        (r"A learning rate of (\S+),", optimizer.learning_rate),
        (r"(\d+) tokens a response", rollout.max_response_tokens),
        (r"a context of (\d+)", OURS.model.context_length),
        (r"\*\*Clip bounds\*\* are (\S+) and", algorithm.clip_low),
        (r"\*\*Clip bounds\*\* are \S+ and (\S+) here", algorithm.clip_high),
        (r"λ is (\S+)\*\* here", algorithm.gae.smoothing),
        (r"deviation, is (\S+) here", STD_EPSILON),
    ):
        found = re.search(said, text)
        assert found, said
        assert float(found[1]) == ours, said


def test_what_trl_has_is_what_the_page_says():
    defaults = trl_defaults()
    checked = 0
    for line in lines(section(PAGE, "TRL")):
        assert len(line.theirs) == len(line.there)
        for name, there in zip(line.theirs, line.there, strict=True):
            assert name in defaults
            assert there == defaults[name] or yaml.safe_load(there) == defaults[name], name
            checked += 1
    assert checked > 35
    assert f"version {version('trl')}, with transformers {version('transformers')}" in PAGE


def test_the_page_can_be_found():
    assert "(docs/from-other-tools.md)" in (ROOT / "README.md").read_text()
    assert "(from-other-tools.md)" in (ROOT / "docs" / "papers.md").read_text()
