"""What a run logs, starts and opens, as far as the code shows it."""

import re
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from configs.errors import UserError
from configs.loader import flatten, load_recipe
from configs.schema import Engine, Recipe
from flows.checks import check_before_start
from flows.rl_post import rl_post
from tasks.cluster.devices import Accelerator
from tasks.server.launch import launch_spec
from tasks.update.environment import learner_environment

ROOT = Path(__file__).parents[3]
LAYERS = ("configs", "trainer", "tasks", "flows")
SECRET = re.compile(r"(?i)password|secret|credential|api[-_]key(?!_variable)|auth_token")
FILES = [file for layer in LAYERS for file in sorted((ROOT / layer).rglob("*.py"))]
each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))


@each_file
def test_no_code_runs_what_comes_with_a_model_or_a_file(file: Path):
    text = file.read_text()

    assert not re.search(r"trust[-_]remote[-_]code", text)
    assert not re.search(r"\bpickle\.loads?\(|torch\.load\(|yaml\.(unsafe_)?load\(", text)


@each_file
def test_nothing_is_told_to_listen_on_every_interface(file: Path):
    assert not re.search(r"""["'=](0\.0\.0\.0|\[?::\]?)["':]""", file.read_text())


@pytest.mark.parametrize("recipe", sorted(path.stem for path in (ROOT / "configs").glob("*.yaml")))
def test_mlflow_and_the_run_directory_get_settings_that_hold_no_secret(recipe: str):
    assert not [key for key in flatten(load_recipe(recipe)) if SECRET.search(key)]


def test_no_setting_is_for_a_secret():
    sections = "\n".join(file.read_text() for file in (ROOT / "configs").glob("*.py"))
    settings = re.findall(r"^    (\w+): ", sections, re.MULTILINE)

    assert {"api_key_variable", "uri", "max_response_tokens"} <= {*settings}
    assert not [name for name in settings if SECRET.search(name)]


@pytest.mark.parametrize(
    "override",
    [
        "tracking.uri=http://user:hunter2@mlflow:5000",
        "tracking.uri=mysql+pymysql://user:hunter2@db/mlflow",
        "data.settings={data_files: ['https://user:hunter2@files/questions.json']}",
        "reward.accuracy={kind: http, url: 'http://user:hunter2@judge'}",
    ],
)
def test_a_password_in_a_recipe_is_refused_and_not_repeated(override: str):
    with pytest.raises(UserError, match=r"user name or password.*MLFLOW_TRACKING_PASSWORD") as raised:
        load_recipe("r1", [override])

    assert "hunter2" not in str(raised.value)


def test_a_password_in_the_wrong_place_of_a_recipe_is_not_repeated():
    with pytest.raises(UserError, match=r"tracking: .*given: 'http://mlflow'") as raised:
        load_recipe("r1", ["tracking=http://user:hunter2@mlflow"])

    assert "hunter2" not in str(raised.value)


def test_a_password_in_prefects_address_is_refused_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RL_POST_HOME", str(tmp_path))
    with (
        temporary_settings({PREFECT_API_URL: "http://user:hunter2@127.0.0.1:9/api"}),
        pytest.raises(UserError, match="PREFECT_API_AUTH_STRING") as raised,
    ):
        check_before_start("quickstart", [], None)

    assert "hunter2" not in str(raised.value)


def test_prefect_stores_a_recipe_overrides_and_a_run_to_resume():
    assert rl_post.parameters.properties.keys() == {"recipe", "overrides", "resume"}


@pytest.mark.parametrize("accelerator", ["cpu", "nvidia", "amd"])
def test_what_ray_and_the_process_table_show_of_an_actor_holds_no_secret(accelerator: Accelerator):
    key_file = Path("/somewhere/settings.yaml")
    recipe = Recipe(name="r", engine=Engine(gpus=1))
    server = launch_spec(
        recipe,
        Path("/m"),
        version=0,
        host="127.0.0.1",
        port=4001,
        accelerator=accelerator,
        seed=0,
        secrets_file=key_file,
    )
    shown = [*server.command, *server.env, *learner_environment(recipe, accelerator)]

    assert not [word for word in shown if SECRET.search(word)]
    assert server.command[server.command.index("--config") + 1] == str(key_file)
