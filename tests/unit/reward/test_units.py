import pytest

from tasks.reward.units import as_unit, same_unit


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("", ""), (" dollars", "dollar"), (" people", "people"), ("cm", "cm"), (" centimeters", "cm"),
        (r"\text{ cm}", "cm"),
        (r" \text{square feet}", "ft ^2"), (" ft^2", "ft ^2"), (" km/h", "km h"), (" miles per hour", "mi h"),
        (r"^\circ", "deg"), (r"^\circ C", "degc"), (" m", "m"), (r"\text{ m}", "m"), ("m^{2}", "m ^2"),
        ("_{5}", "base5"),
        (" boxes", "box"), (" glasses", "glass"), (r"\text{ in}", "in"), ("千克", "千克"),
    ],
)  # fmt: skip
def test_words_behind_a_number_are_a_unit_in_one_spelling(text: str, unit: str):
    assert as_unit(text) == unit


@pytest.mark.parametrize(
    "text", ["x", "ab", " x", "m", " or 3", " of them", r"\pi", " pi", " sin x", "!", ":30", " + 1", " 3", " if true"]
)
def test_variables_operators_and_connectives_are_no_unit(text: str):
    assert as_unit(text) is None


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("cm", "", True),
        ("", "cm", True),
        ("cm", "cm", True),
        ("cm", "m", False),
        ("cm", "cm ^2", False),
        ("dollar", "people", False),
        ("apple", "red apple", True),
    ],
)
def test_units_are_the_same_if_one_says_nothing_or_they_share_a_word(left: str, right: str, same: bool):
    assert same_unit(left, right) is same
