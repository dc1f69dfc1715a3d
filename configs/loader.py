"""From a YAML file and `key=value` overrides to a validated recipe.

A recipe file may say `extends: other.yaml` (relative to itself; the extending file wins key by key) and may hold
`scales`: named sets of settings, each with the number of GPUs that it needs. `scale: auto` takes the largest that the
cluster can hold.
"""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from configs.addresses import without_user
from configs.errors import UserError
from configs.schema import STORED, Recipe

RECIPES = Path(__file__).parent
MOVED = {
    "engine.start_timeout": "timeouts.engine_start",
    "engine.request_timeout": "timeouts.request",
    "engine.hang_timeout": "timeouts.hang",
}
"""Settings of stored recipes that are elsewhere since."""
Tree = dict[str, Any]


def load_recipe(name: str, overrides: Sequence[str] = (), gpus: int = 0) -> Recipe:
    """Load, choose the scale, apply the overrides, validate.

    Args:
        name: A recipe of this folder without its suffix (`r1`), or the path of a YAML file.
        overrides: `section.key=value`, the value in YAML.
        gpus: GPUs that the cluster offers, for `scale: auto`.

    Raises:
        UserError: names the file and the key, and the nearest key that there is.
    """
    path = find_recipe(name)
    tree = _merge({"name": path.stem}, _read(path))
    chosen = [_parse_override(override) for override in overrides]
    for keys, value in chosen:
        tree = _put(tree, keys, value)
    tree = _choose_scale(tree, gpus, path)
    for keys, value in chosen:
        tree = _put(tree, keys, value)
    return _validated(tree, path)


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe as `dump_yaml` wrote it, its scale long chosen, and apply overrides.

    What is refused only since it was written is let through: the run that it belongs to has to go on.

    Raises:
        UserError: names the file and what is wrong with it.
    """
    if not path.is_file():
        raise UserError(f"{path} is missing")
    tree = _read(path)
    for old, new in MOVED.items():
        section, _, key = old.partition(".")
        if key in tree.get(section, {}):
            tree = _put(tree, new.split("."), tree[section].pop(key))
    for keys, value in map(_parse_override, overrides):
        tree = _put(tree, keys, value)
    return _validated(tree, path, STORED)


def find_recipe(name: str) -> Path:
    """Return the file of a recipe given by name or by path."""
    for path in (Path(name), RECIPES / f"{name}.yaml"):
        if path.is_file():
            return path
    known = sorted(path.stem for path in RECIPES.glob("*.yaml"))
    raise UserError(f"no recipe {name!r}: give a YAML file or one of {', '.join(known)}{_nearest(name, known)}")


def flatten(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe's leaves by dotted key, e.g. `{"rollout.shards": 2}`."""

    def leaves(tree: Tree, prefix: str) -> Iterator[tuple[str, Any]]:
        for key, value in tree.items():
            if isinstance(value, dict):
                yield from leaves(value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", value

    return dict(leaves(recipe.model_dump(mode="json"), ""))


def dump_yaml(recipe: Recipe) -> str:
    """Return the resolved recipe as YAML, in the schema's order."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False)


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, but for a key that is said twice: the last one would win, silently."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Look at the keys as they are written: what `<<` brings comes later, and may be said again."""
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.YAMLError(f"the key in line {line} is no plain text")
            if key.value in lines:
                raise yaml.YAMLError(f"{key.value} is said twice, in line {lines[key.value]} and in line {line}")
            lines[key.value] = line
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Leave each key once, with the mapping's own value: whoever merges this mapping would get the other one."""
        super().flatten_mapping(node)
        node.value = list({key.value: (key, value) for key, value in node.value}.values())


def _load(text: str) -> Any:
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _read(path: Path, seen: tuple[Path, ...] = ()) -> Tree:
    path = path.resolve()
    if path in seen:
        raise UserError(f"{path}: `extends` goes in a circle through {', '.join(p.name for p in seen)}")
    try:
        tree = _load(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{seen[-1]}: extends {path.name}, which is not there") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not valid YAML: {error}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None
    if not isinstance(tree, dict):
        raise UserError(f"{path}: a recipe is a mapping of keys to values")
    base = tree.pop("extends", None)
    return _merge(_read(path.parent / base, (*seen, path)), tree) if base else tree


def _merge(base: Tree, top: Tree) -> Tree:
    """Return `base` with `top` laid over it, mapping by mapping."""
    merged = dict(base)
    for key, value in top.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _put(tree: Tree, keys: list[str], value: Any) -> Tree:
    """Return `tree` with the value at a path of keys replaced, a mapping too."""
    key, *rest = keys
    inner = tree.get(key)
    return tree | {key: _put(inner if isinstance(inner, dict) else {}, rest, value) if rest else value}


def _parse_override(override: str) -> tuple[list[str], Any]:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise UserError(f"override {override!r} is not of the form section.key=value")
    try:
        return key.strip().split("."), _load(text)
    except yaml.YAMLError:
        raise UserError(f"override {override!r}: the value is not valid YAML") from None


def _choose_scale(tree: Tree, gpus: int, path: Path) -> Tree:
    """Lay the chosen entry of `scales` over the recipe and drop the others."""
    tree = dict(tree)
    scales: dict[str, Tree] = tree.pop("scales", {})
    wanted = tree.get("scale", "auto" if scales else "fixed")
    if not scales:
        return tree | {"scale": "fixed"}
    if wanted == "auto":
        fitting = [name for name, scale in scales.items() if scale.get("gpus", 0) <= gpus]
        if not fitting:
            raise UserError(f"{path}: no entry of `scales` fits {gpus} GPUs")
        wanted = max(fitting, key=lambda name: scales[name].get("gpus", 0))
    if wanted not in scales:
        raise UserError(f"{path}: scale {wanted!r} is not one of auto, {', '.join(scales)}")
    settings = {key: value for key, value in scales[wanted].items() if key != "gpus"}
    return _merge(tree, settings) | {"scale": wanted}


def _validated(tree: Tree, path: Path, context: dict[str, bool] | None = None) -> Recipe:
    try:
        return Recipe.model_validate(tree, context=context)
    except ValidationError as error:
        raise UserError(without_user(_explain(error, path))) from None


def _explain(error: ValidationError, path: Path) -> str:
    lines = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            known = _keys_at(problem["loc"][:-1])
            moved = f"; it is now {MOVED[key]}" if key in MOVED else _nearest(str(problem["loc"][-1]), known)
            lines.append(f"unknown key {key}{moved}")
        else:
            given = "" if isinstance(problem["input"], dict) else f" (given: {problem['input']!r})"
            message = problem["msg"].removeprefix("Value error, ")
            lines.append(f"{key}: {message}{given}" if key else message)
    return f"{path}: " + "; ".join(lines)


def _keys_at(location: tuple[int | str, ...]) -> list[str]:
    """Return the keys that the schema has at a location."""
    model: type[BaseModel] = Recipe
    for part in location:
        if part not in model.model_fields:  # the position in a list, or the kind of a union
            continue
        annotation = model.model_fields[str(part)].annotation
        # An optional section is a union with None.
        options = [option for option in (annotation, *get_args(annotation)) if isinstance(option, type)]
        model = next(option for option in options if issubclass(option, BaseModel))
    return list(model.model_fields)


def _nearest(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""
