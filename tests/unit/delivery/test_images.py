"""The images can't be built here. What a Dockerfile shows to who reads it is checked: rules of hadolint, and ours."""

import re
import subprocess
import tomllib
from dataclasses import dataclass
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
DOCKERFILES = sorted((ROOT / "docker").glob("Dockerfile.*"))
SCRIPTS = sorted((ROOT / "docker").glob("*.sh"))
each_dockerfile = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
each_script = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)


@dataclass(frozen=True)
class Instruction:
    word: str
    rest: str


def instructions(path: Path) -> list[Instruction]:
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [Instruction(*line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def named(path: Path, word: str) -> list[str]:
    return [instruction.rest for instruction in instructions(path) if instruction.word == word]


def dependencies() -> dict[str, Requirement]:
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, lines)}


def test_there_is_an_image_for_each_vendor():
    assert [path.name for path in DOCKERFILES] == ["Dockerfile.cuda", "Dockerfile.rocm"]


@each_dockerfile
def test_the_base_is_sglangs_image_of_the_version_that_the_project_pins(path: Path):
    (argument,) = named(path, "ARG")
    sglang = str(dependencies()["sglang"].specifier).removeprefix("==")

    assert named(path, "FROM") == ["${SGLANG_IMAGE}"]
    assert re.fullmatch(rf"SGLANG_IMAGE=lmsysorg/sglang:v{re.escape(sglang)}-(cu130|rocm10-mi30x)", argument)


@each_dockerfile
def test_the_words_are_those_of_a_dockerfile_and_the_risky_ones_are_not_among_them(path: Path):
    words = {instruction.word for instruction in instructions(path)}

    assert words <= {"ARG", "FROM", "SHELL", "WORKDIR", "COPY", "RUN", "USER", "ENV", "CMD"}  # no ADD: DL3020


@each_dockerfile
def test_the_container_does_not_run_as_root(path: Path):
    assert named(path, "USER")[-1] == "rl-post"  # DL3002
    assert instructions(path)[-1].word == "CMD"
    assert "useradd --create-home --uid 10001 rl-post" in "\n".join(named(path, "RUN"))


@each_dockerfile
def test_commands_fail_where_they_should_and_leave_no_cache(path: Path):
    runs = named(path, "RUN")

    assert named(path, "SHELL") == ['["/bin/bash", "-euo", "pipefail", "-c"]']  # DL4006
    assert all(place.startswith("/") for place in named(path, "WORKDIR"))  # DL3000
    for command in runs:
        assert not re.search(r"\b(sudo|curl|wget|cd)\b", command)  # DL3004, DL3003, nothing from an address
        assert "pip install" not in command or "--no-cache-dir" in command  # DL3042


@each_dockerfile
def test_what_is_copied_is_there_and_not_hidden_from_the_build(path: Path):
    shown = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]

    for sources in named(path, "COPY"):
        for source in sources.split()[:-1]:
            assert (ROOT / source).exists()
            assert source == "." or source.split("/")[0] in shown
    assert all((ROOT / name).exists() for name in shown)
    assert {"configs", "flows", "tasks", "trainer", "pyproject.toml", "prefect.yaml"} <= {*shown}


@each_dockerfile
def test_no_secret_is_in_the_image(path: Path):
    settings = "\n".join(named(path, "ENV") + named(path, "ARG"))

    assert not re.search(r"(?i)(token|password|secret|key)\w*\s*=\s*(?!token\b)", settings)


def test_ray_is_closed_to_who_has_no_token_in_every_image():
    assert all("RAY_AUTH_MODE=token" in "\n".join(named(path, "ENV")) for path in DOCKERFILES)


def test_what_the_images_add_has_the_versions_of_the_project():
    lines = (ROOT / "requirements/image.txt").read_text().splitlines()
    added = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pinned = [requirement for requirement in added if requirement.specifier]

    assert {"prefect", "prefect-ray", "ray", "mlflow"} <= {requirement.name for requirement in pinned}
    for requirement in pinned:
        ours = dependencies()[canonicalize_name(requirement.name)]
        assert (requirement.specifier, requirement.extras) == (ours.specifier, ours.extras)


def test_what_the_images_do_not_add_comes_with_sglang():
    lines = (ROOT / "requirements/image.txt").read_text().splitlines()
    added = {canonicalize_name(Requirement(line).name) for line in lines if line and not line.startswith("#")}
    missing = dependencies().keys() - added - {"sglang"}
    its = [line for package in ("sglang", "transformers", "torch") for line in requires(package) or []]
    brought = {canonicalize_name(Requirement(line).name) for line in its}

    assert missing <= brought
    assert added <= dependencies().keys()


@each_script
def test_shell_scripts_are_bash_that_stops_at_the_first_failure(path: Path):
    text = path.read_text()

    assert subprocess.run(["bash", "-n", path], capture_output=True, text=True).stderr == ""
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text
    assert path.stat().st_mode & 0o111


@each_script
def test_shell_scripts_quote_what_they_expand(path: Path):
    code = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))
    bare = re.sub(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", "", code)  # what no quotes enclose

    assert "`" not in code
    assert not re.search(r"\beval\b|\b(curl|wget)\b", code)
    assert not re.search(r"\$\{?\w", re.sub(r"\$\(\([^)]*\)\)", "", bare))
