r"""Golds and responses, equal and unequal ones in every form that answers come in, drawn from a seed."""

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """A gold, a response, whether its answer is equal to the gold, and the form that the answer is written in."""

    form: str
    gold: str
    response: str
    equal: bool


Forms = dict[str, tuple[str, bool]]
"""Answers by the name of their form: the text, and whether it is equal to the gold."""


def generate(seed: int, count: int) -> Iterator[Pair]:
    """Yield pairs, every family and form in turn."""
    rng = random.Random(seed)
    while True:
        for name, family in FAMILIES.items():
            gold, forms = family(rng)
            for form, (text, equal) in forms.items():
                yield Pair(f"{name}: {form}", gold, rng.choice(WRAPPERS).replace("ANSWER", text), equal)
                count -= 1
                if count == 0:
                    return


WRAPPERS = [
    r"\boxed{ANSWER}",
    r"We have 3 cases and $x^2 = 9$. The final answer is $\boxed{ANSWER}$.",
    r"<think>Is it \boxed{17}? No.</think> Therefore \[ \boxed{ANSWER} \]",
    r"So the result is $ANSWER$.",
    r"Summing up, the answer is \(ANSWER\)",
]


def fractions(rng: random.Random) -> tuple[str, Forms]:
    p, q, k = rng.randint(1, 40), rng.randint(2, 30), rng.randint(2, 9)
    return rf"\frac{{{p}}}{{{q}}}", {
        "slash": (f"{p}/{q}", True),
        "expanded": (rf"\frac{{{p * k}}}{{{q * k}}}", True),
        "dfrac": (rf"\dfrac{{{p}}}{{{q}}}", True),
        "product": (rf"{p} \cdot \frac{{1}}{{{q}}}", True),
        "other numerator": (rf"\frac{{{p + 1}}}{{{q}}}", False),
        "negative": (rf"-\frac{{{p}}}{{{q}}}", False),
        "numerator alone": (str(p * q + 1), False),
        "inverse of another": (rf"\frac{{{q + p}}}{{{p}}}", p * p == q * (q + p)),
    }


def mixed_numbers(rng: random.Random) -> tuple[str, Forms]:
    whole, p = rng.randint(2, 30), rng.choice([1, 3])
    return f"{whole} {p}/4", {
        "decimal": (f"{whole}.{25 * p}", True),
        "improper": (rf"\frac{{{4 * whole + p}}}{{4}}", True),
        "LaTeX": (rf"{whole}\frac{{{p}}}{{4}}", True),
        "whole part alone": (str(whole), False),
        "product": (rf"{whole} \cdot \frac{{{p}}}{{4}}", False),
    }


def decimals(rng: random.Random) -> tuple[str, Forms]:
    cents = rng.randint(1, 99999)
    value = f"{cents / 100:.2f}"
    return value, {
        "more zeros": (f"{value}00", True),
        "fraction": (rf"\frac{{{cents}}}{{100}}", True),
        "full stop": (f"{value}.", True),
        "plus": (f"+{value}", True),
        "off by a cent": (f"{(cents + 1) / 100:.2f}", False),
        "rounded off": (str(cents // 100), cents % 100 == 0),
        "ten times": (f"{cents / 10:.1f}", False),
    }


def thousands(rng: random.Random) -> tuple[str, Forms]:
    value = rng.randint(1000, 10**8)
    return str(value), {
        "commas": (f"{value:,}", True),
        "braced commas": (f"{value:,}".replace(",", "{,}"), True),
        "spaces": (f"{value:,}".replace(",", " "), True),
        "dollars": (rf"\${value:,}", True),
        "decimals": (f"{value:,}.00", True),
        "first group": (f"{value:,}".split(",")[0], False),
        "last group": (f"{value:,}".split(",")[-1], False),
        "off by one": (f"{value + 1:,}", False),
    }


def percents(rng: random.Random) -> tuple[str, Forms]:
    value = rng.randint(2, 99)
    return rf"{value}\%", {
        "sign": (rf"{value}\%", True),
        "bare": (str(value), True),
        "hundredths": (f"{value / 100}", True),
        "word": (rf"{value} \text{{ percent}}", True),
        "off by one": (rf"{value + 1}\%", False),
        "a hundred times": (rf"{value}00\%", False),
    }


def units(rng: random.Random) -> tuple[str, Forms]:
    value, unit = rng.randint(2, 500), rng.choice(["cm", "meters", "apples", "square units", "hours"])
    return str(value), {
        "text": (rf"{value} \text{{ {unit}}}", True),
        "mathrm": (rf"{value}\,\mathrm{{{unit.split()[0]}}}", True),
        "degrees": (rf"{value}^\circ", True),
        "another number": (rf"{value + 1} \text{{ {unit}}}", False),
    }


def intervals(rng: random.Random) -> tuple[str, Forms]:
    a = rng.randint(-20, 10)
    b = a + rng.randint(1, 20)
    return f"[{a},{b})", {
        "spaces": (f"[ {a}, {b} )", True),
        "left and right": (rf"\left[{a}, {b}\right)", True),
        "element of": (rf"x \in [{a},{b})", True),
        "as a fraction": (rf"\left[{a}, \frac{{{2 * b}}}{{2}}\right)", True),
        "closed": (f"[{a},{b}]", False),
        "open": (f"({a},{b})", False),
        "other end": (f"[{a},{b + 1})", False),
    }


def tuples(rng: random.Random) -> tuple[str, Forms]:
    a, b, c = rng.sample(range(-9, 10), 3)
    return f"({a},{b},{c})", {
        "spaces": (f"({a}, {b}, {c})", True),
        "left and right": (rf"\left({a}, {b}, {c}\right)", True),
        "fraction": (rf"\left({a}, \frac{{{2 * b}}}{{2}}, {c}\right)", True),
        "decimal": (f"({a}.0, {b}, {c})", True),
        "another order": (f"({c},{b},{a})", False),
        "shorter": (f"({a},{b})", False),
        "other": (f"({a},{b},{c + 1})", False),
    }


def sets(rng: random.Random) -> tuple[str, Forms]:
    a, b, c = sorted(rng.sample(range(-9, 10), 3))
    return rf"\{{{a},{b},{c}\}}", {
        "another order": (rf"\{{{c}, {a}, {b}\}}", True),
        "no braces": (f"{a}, {b}, {c}", True),
        "and": (rf"{a}, {b} \text{{ and }} {c}", True),
        "subset": (rf"\{{{a},{b}\}}", False),
        "other": (rf"\{{{a},{b},{c + 1}\}}", False),
        "one of them": (str(b), False),
    }


def matrices(rng: random.Random) -> tuple[str, Forms]:
    a, b, c, d = (rng.randint(-9, 9) for _ in range(4))

    def matrix(entries: tuple[object, object, object, object], kind: str = "pmatrix") -> str:
        return rf"\begin{{{kind}}} {entries[0]} & {entries[1]} \\ {entries[2]} & {entries[3]} \end{{{kind}}}"

    return matrix((a, b, c, d)), {
        "brackets": (matrix((a, b, c, d), "bmatrix"), True),
        "fraction": (matrix((a, rf"\frac{{{2 * b}}}{{2}}", c, d)), True),
        "sum": (matrix((a, b, f"{c - 1} + 1", d)), True),
        "transposed": (matrix((a, c, b, d)), b == c),
        "other entry": (matrix((a, b, c, d + 1)), False),
        "a number": (str(a), False),
    }


def radicals(rng: random.Random) -> tuple[str, Forms]:
    k, n = rng.randint(2, 9), rng.choice([2, 3, 5, 6, 7, 10])
    return rf"{k}\sqrt{{{n}}}", {
        "one root": (rf"\sqrt{{{k * k * n}}}", True),
        "power": (rf"{k} \cdot {n}^{{1/2}}", True),
        "in front": (rf"\sqrt{{{n}}} \cdot {k}", True),
        "rationalised": (rf"\frac{{{k * n}}}{{\sqrt{{{n}}}}}", True),
        "without the root": (str(k * n), False),
        "other root": (rf"{k}\sqrt{{{n + 1}}}", False),
        "factor alone": (str(k), False),
        "rounded": (f"{k * n**0.5:.2f}", False),
    }


def multiples_of_pi(rng: random.Random) -> tuple[str, Forms]:
    k = rng.randint(2, 60)
    return rf"{k}\pi", {
        "dot": (rf"{k} \cdot \pi", True),
        "in front": (rf"\pi \cdot {k}", True),
        "half of the double": (rf"\frac{{{2 * k}\pi}}{{2}}", True),
        "symbol": (f"{k}\u03c0", True),
        "factor alone": (str(k), False),
        "rounded": (f"{k * 3.14:.2f}", False),
        "other factor": (rf"{k + 1}\pi", False),
    }


def polynomials(rng: random.Random) -> tuple[str, Forms]:
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    return f"x^2 + {a + b}x + {a * b}", {
        "factored": (f"(x+{a})(x+{b})", True),
        "another order": (f"{a * b} + {a + b}x + x^2", True),
        "braces": (f"x^{{2}}+{a + b}x+{a * b}", True),
        "other constant": (f"x^2 + {a + b}x + {a * b + 1}", False),
        "other variable": (f"y^2 + {a + b}y + {a * b}", False),
        "number": (str(a * b), False),
    }


def assignments(rng: random.Random) -> tuple[str, Forms]:
    value = rng.randint(-50, 50)
    return f"x = {value}", {
        "value alone": (str(value), True),
        "no spaces": (f"x={value}", True),
        "turned": (f"x = {value - 1} + 1", True),
        "other value": (f"x = {value + 1}", False),
        "other variable": (f"y = {value}", False),
    }


def words(rng: random.Random) -> tuple[str, Forms]:
    word, other = rng.sample(["Evelyn", "Monday", "even", "east", "isosceles"], 2)
    return rf"\text{{{word}}}", {
        "text": (rf"\text{{{word}}}", True),
        "bold": (rf"\textbf{{{word}}}", True),
        "bare": (word, True),
        "other": (rf"\text{{{other}}}", False),
        "a number": (str(rng.randint(1, 9)), False),
    }


FAMILIES = {
    family.__name__.replace("_", " "): family
    for family in (
        fractions, mixed_numbers, decimals, thousands, percents, units, intervals, tuples, sets, matrices, radicals,
        multiples_of_pi, polynomials, assignments, words,
    )
}  # fmt: skip
