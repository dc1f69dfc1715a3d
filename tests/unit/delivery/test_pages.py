"""What the pages name is there: files, folders, and functions of test files."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SGLANGS = {"docker/rocm.Dockerfile"}
OURS = r"(?:configs|trainer|tasks|flows|tests|benchmarks|docs|docker|requirements)"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_files_that_a_page_names_are_there(page: Path):
    text = page.read_text()
    named = {name for name in re.findall(rf"`({OURS}/[\w./-]+?)`", text)}
    linked = {link.split("#")[0] for link in re.findall(r"\]\(([\w./-]+(?:#[\w-]*)?)\)", text)}

    assert {name for name in named if not (ROOT / name).exists()} <= SGLANGS
    assert {link for link in linked if link and not (page.parent / link).exists()} == set()


# The page about other tools names their settings, `trainer.total_epochs`; it has tests of its own.
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "from-other-tools.md"], ids=lambda page: page.name
)
def test_the_modules_that_a_page_names_are_there(page: Path):
    for name in re.findall(r"`((?:trainer|tasks|flows)(?:\.\w+)+)`", page.read_text()):
        parts = name.split(".")
        places = [ROOT.joinpath(*parts[:length]) for length in range(len(parts), 0, -1)]
        found = next(place for place in places if place.is_dir() or place.with_suffix(".py").is_file())
        missing = parts[len(found.relative_to(ROOT).parts) :]

        assert not missing or re.search(
            rf"^(?:def |class |    def )?{missing[0]}\b", found.with_suffix(".py").read_text(), re.M
        ), name
