import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.reward.notation import normalise


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("\u22123", "-3"), ("x²+1", "x^{2}+1"), ("½", r"\frac{1}{2}"), ("√2", r"\sqrt{2}"), ("√(x+1)", r"\sqrt{x+1}"),
        ("∛8", r"\sqrt[3]{8}"), ("3·4", r"3\cdot 4"), ("6÷2", "6/2"), (r"6\div2", "6/2"), ("π/2", r"\pi /2"),
        ("74°", r"74^\circ"), (r"45^{\circ}", r"45^\circ"), (r"\frac12", r"\frac{1}{2}"),
        (r"\dfrac 1 2", r"\frac{1}{2}"),
        (r"\frac{\frac12}{3}", r"\frac{\frac{1}{2}}{3}"), (r"\sqrt13", r"\sqrt{13}"), (r"\sqrt[3]2", r"\sqrt[3]{2}"),
        (r"10,\!080", "10,080"), (r"1,\! 000", "1,000"), (r"12\,000", "12 000"), ("10{,}080", "10,080"),
        (r"\left(1, 2\right)", "(1, 2)"), (r"\left\{1,2\right\}", r"\{1,2\}"), (r"\textbf{(B)}\ 12", r"\text{(B)} 12"),
        (r"\text{13}", "13"), (r"\text{\textbf{B}}", r"\text{B}"), (r"\mathcal{B}", "B"), (r"a\leq b", r"a\le b"),
        (r"x \equiv 2 \pmod 5", r"x \equiv 2 \pmod{5}"), ("x≡2 (mod 5)", r"x\equiv 2 \pmod{5}"), ("10⁻³", "10^{-3}"),
        ("\uff11\uff12", "12"), ("e\u0301", "\u00e9"), (r"1 & 2 \\ 3", r"1 & 2 \\ 3"), (r"50\%", "50%"),
    ],
)  # fmt: skip
def test_every_way_of_writing_is_read_as_one(written: str, read: str):
    assert normalise(written) == read


@given(st.text() | st.text("\\{}frac sqrt²√½,!12", max_size=60))
def test_no_text_raises_and_what_is_plain_already_stays(text: str):
    once = normalise(text)
    assert normalise("12 + x") == "12 + x" and isinstance(once, str)
