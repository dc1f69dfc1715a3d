r"""Golds and responses, equal and unequal ones in every form that answers come in, drawn from a seed."""

import random
from collections.abc import Callable, Iterator, Mapping
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
Family = Callable[[random.Random], tuple[str, Forms]]
"""Draws a gold and answers to it."""


def generate(seed: int, count: int, families: "Mapping[str, Family] | None" = None) -> Iterator[Pair]:
    """Yield pairs, every family and form in turn; by default those of FAMILIES."""
    rng = random.Random(seed)
    while True:
        for name, family in (families or FAMILIES).items():
            gold, forms = family(rng)
            for form, (text, equal) in forms.items():
                response = text if "boxed" in text or ". " in text else rng.choice(WRAPPERS).replace("ANSWER", text)
                yield Pair(f"{name}: {form}", gold, response, equal)
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


def powers(rng: random.Random) -> tuple[str, Forms]:
    digit, exponent = rng.randint(2, 9), rng.randint(3, 8)
    value = digit * 10**exponent
    return str(value), {
        "scientific": (rf"{digit} \times 10^{exponent}", True),
        "with an x": (f"We multiply. The answer is {digit} x 10^{exponent}.", True),
        "with Unicode": (f"{digit}\u00b710{str(exponent).translate(RAISED)}", True),
        "e": (f"{digit}e{exponent}", True),
        "exponent alone": (str(exponent), False),
        "next exponent": (rf"{digit} \times 10^{exponent + 1}", False),
    }


def named_units(rng: random.Random) -> tuple[str, Forms]:
    value, (unit, long, other) = rng.randint(2, 500), rng.choice(UNITS)
    return rf"{value}\text{{ {unit}}}", {
        "in full": (f"{value} {long}", True),
        "none": (str(value), True),
        "in mathrm": (rf"{value}\,\mathrm{{{unit}}}", True),
        "another unit": (rf"{value}\text{{ {other}}}", False),
        "another number": (rf"{value + 1}\text{{ {unit}}}", False),
        "a power": (f"We measure. The answer is {value} {unit}^2.", False),
    }


def any_units(rng: random.Random) -> tuple[str, Forms]:
    value, unit = rng.randint(2, 500), rng.choice(["widgets", "red marbles", "eggs per day", "students", "pesos"])
    return str(value), {
        "plain": (f"{value} {unit}", True),
        "in a sentence": (f"We count. The answer is {value} {unit}.", True),
        "another number": (f"{value + 1} {unit}", False),
        "a variable": (f"{value}x", False),
        "a million": (f"{value} million", False),
    }


def small_values(rng: random.Random) -> tuple[str, Forms]:
    base, exponent = rng.choice([2, 3, 5, 7]), rng.randint(30, 60)
    return rf"\frac{{1}}{{{base}^{{{exponent}}}}}", {
        "negative exponent": (rf"{base}^{{-{exponent}}}", True),
        "next exponent": (rf"\frac{{1}}{{{base}^{{{exponent + 1}}}}}", False),
        "zero": ("0", False),
    }


def rounded(rng: random.Random) -> tuple[str, Forms]:
    p, q = rng.randint(1, 9), rng.choice([3, 7, 9, 11, 13])
    if p % q == 0:
        p += 1
    return rf"\frac{{{p}}}{{{q}}}", {
        "seven digits": (f"{p / q:.7f}", True),
        "two digits": (f"{p / q:.2f}", False),
        "last digit wrong": (f"{p / q + 2e-7:.7f}", False),
    }


def unicode_terms(rng: random.Random) -> tuple[str, Forms]:
    k, n = rng.randint(2, 9), rng.choice([2, 3, 5, 7])
    return rf"{k}x^2+\sqrt{{{n}}}", {
        "Unicode": (f"{k}x\u00b2+\u221a{n}", True),
        "other power": (f"{k}x\u00b3+\u221a{n}", False),
        "other root": (f"{k}x\u00b2+\u221a{n + 1}", False),
    }


def inequalities(rng: random.Random) -> tuple[str, Forms]:
    a = rng.randint(-20, 10)
    b = a + rng.randint(1, 20)
    return f"[{a},{b})", {
        "chain": (rf"{a} \le x < {b}", True),
        "turned": (rf"{b} > x \ge {a}", True),
        "with Unicode": (f"{a} \u2264 x < {b}", True),
        "closed": (rf"{a} \le x \le {b}", False),
        "other end": (rf"{a} \le x < {b + 1}", False),
    }


def unions(rng: random.Random) -> tuple[str, Forms]:
    a = rng.randint(-20, 10)
    b = a + rng.randint(1, 20)
    return rf"(-\infty,{a})\cup({b},\infty)", {
        "or": (rf"x<{a} \text{{ or }} x>{b}", True),
        "turned or": (f"x > {b} or x < {a}", True),
        "one of them": (f"x<{a}", False),
        "closed": (rf"x\le {a} \text{{ or }} x>{b}", False),
    }


def congruences(rng: random.Random) -> tuple[str, Forms]:
    m = rng.randint(3, 20)
    r = rng.randint(0, m - 1)
    return rf"x \equiv {r} \pmod{{{m}}}", {
        "no braces": (rf"x \equiv {r} \pmod {m}" if m < 10 else rf"x\equiv {r}\pmod{{{m}}}", True),
        "plain": (f"x\u2261{r} (mod {m})", True),
        "another member": (rf"x \equiv {r + m} \pmod{{{m}}}", True),
        "another class": (rf"x \equiv {r + 1} \pmod{{{m}}}", False),
        "another modulus": (rf"x \equiv {r} \pmod{{{m + 1}}}", False),
    }


def spellings(rng: random.Random) -> tuple[str, Forms]:
    k, n = rng.randint(2, 9), rng.choice([2, 3, 5, 7])
    return f"{k}*sqrt({n})+pi/{n}", {
        "LaTeX": (rf"{k}\sqrt{{{n}}} + \frac{{\pi}}{{{n}}}", True),
        "another order": (rf"\frac{{\pi}}{{{n}}}+\sqrt{{{k * k * n}}}", True),
        "without pi": (rf"{k}\sqrt{{{n}}}", False),
        "other root": (rf"{k}\sqrt{{{n + 1}}} + \frac{{\pi}}{{{n}}}", False),
    }


def side_by_side(rng: random.Random) -> tuple[str, Forms]:
    a, b = rng.sample(range(-9, 10), 2)
    return f"{a},{b}", {
        "and": (rf"$x=\boxed{{{a}}}$ and $x=\boxed{{{b}}}$", True),
        "commas": (rf"\boxed{{{b}}}, \boxed{{{a}}}", True),
        "one of them": (rf"\boxed{{{b}}}", False),
        "corrected": (rf"\boxed{{{a}}} is wrong, it is \boxed{{{b}}}", False),
    }


def sentences(rng: random.Random) -> tuple[str, Forms]:
    p, q = rng.randint(1, 8), rng.choice([9, 11, 13])
    return rf"\frac{{{p}}}{{{q}}}", {
        "last": (f"We divide. The probability is {p}/{q} as we saw.", True),
        "behind a formula": (rf"\[ \frac{{8}}{{2}} = 4 \] So we divide. The answer is {p}/{q}.", True),
        "another": (f"We divide. The probability is {p + 1}/{q}.", False),
        "part of it": (f"We divide. The probability is {p}.", False),
    }


def names(rng: random.Random) -> tuple[str, Forms]:
    word, other = rng.sample(["Evelyn", "Monday", "isosceles", "east", "seat"], 2)
    return rf"\text{{{word}}}", {
        "in a sentence": (f"We compare. The answer is {word}.", True),
        "small": (word.lower(), True),
        "other": (f"We compare. The answer is {other}.", False),
        "other word": (other, False),
    }


RAISED = str.maketrans("0123456789", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
UNITS = [
    ("cm", "centimeters", "m"), ("kg", "kilograms", "g"), ("hours", "hrs", "minutes"), ("miles", "miles", "km"),
    ("dollars", "dollars", "euros"),
]  # fmt: skip
FAMILIES = {
    family.__name__.replace("_", " "): family
    for family in (
        fractions, mixed_numbers, decimals, thousands, percents, units, intervals, tuples, sets, matrices, radicals,
        multiples_of_pi, polynomials, assignments, words,
    )
}  # fmt: skip

FOUND_IN_USE = {
    family.__name__.replace("_", " "): family
    for family in (
        powers, named_units, any_units, small_values, rounded, unicode_terms, inequalities, unions, congruences,
        spellings, side_by_side, sentences, names,
    )
}  # fmt: skip
"""Families of the kinds that were read wrongly in use."""
