"""Which texts end a response."""

import pytest

from configs.errors import UserError
from configs.loader import RECIPES, load_recipe
from configs.schema import PLAIN_STOPS

SHIPPED = sorted(path.stem for path in RECIPES.glob("*.yaml"))


@pytest.mark.parametrize("name", SHIPPED)
def test_u06_a_recipe_with_a_chat_template_has_none(name: str) -> None:
    assert load_recipe(name).stop == ()


def test_u06_a_recipe_with_a_plain_template_has_where_a_next_question_begins() -> None:
    assert load_recipe("r1", ["data.chat_template=plain"]).stop == PLAIN_STOPS
    assert "\nQuestion:" in PLAIN_STOPS


@pytest.mark.parametrize("template", ["plain", "null"])
def test_u06_what_the_recipe_says_counts_and_an_empty_list_is_none(template: str) -> None:
    own = load_recipe("r1", [f"data.chat_template={template}", 'rollout.stop=["\\n\\n"]'])
    assert own.stop == ("\n\n",)
    assert load_recipe("r1", [f"data.chat_template={template}", "rollout.stop=[]"]).stop == ()


@pytest.mark.parametrize("stop", ['[""]', '["a", ""]', str(list("abcdefghijklmnopqrstuvwxyz0123456"))])
def test_an_empty_text_and_more_than_an_engine_takes_are_refused(stop: str) -> None:
    with pytest.raises(UserError, match=r"rollout\.stop"):
        load_recipe("r1", [f"rollout.stop={stop}"])
