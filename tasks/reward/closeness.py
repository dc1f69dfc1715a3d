"""Whether two symbolic numbers or relations are equal. It stands in for two functions of math-verify.

Its own rounds all numbers to six decimal places, whatever their size, and takes any two equations without a solution
for the same.
"""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import sympy
from latex2sympy2_extended.logic import And
from math_verify.grader import get_pct_val
from sympy import Eq, Float, MatrixBase, Rational

from tasks.reward.numbers import is_rounded

# Digits to which two exact numbers are worked out. Different ones that people write differ sooner.
_DIGITS = 60
_NEARLY = Rational(1, 10**50)


def are_equal(left: Any, right: Any, *_: int) -> bool:
    """Tell whether two expressions are the same number, exactly or as a decimal that the other one was rounded to.

    Those with variables must be the same when multiplied out; others look further. Matrices are compared entry by
    entry. A percentage is worth its number or a hundredth of it, as in `numbers`.
    """
    left, right = _done(left), _done(right)
    if isinstance(left, MatrixBase) or isinstance(right, MatrixBase):
        alike = isinstance(left, MatrixBase) and isinstance(right, MatrixBase) and left.shape == right.shape
        return alike and all(are_equal(*pair) for pair in zip(left.flat(), right.flat(), strict=True))
    if left.free_symbols or right.free_symbols:
        return sympy.expand(_exactly(left) - _exactly(right)) == 0
    percents: list[Any] = [get_pct_val(left), get_pct_val(right)]
    if (percents[0] is None) != (percents[1] is None):
        number, other = (percents[0], right) if percents[0] is not None else (percents[1], left)
        return are_equal(number, other) or are_equal(number / 100, other)
    return _same(left, right)


def are_same_relation(left: Any, right: Any, *_: int) -> bool:
    """Tell whether an equation or inequality is a multiple of another one, or has the same solutions.

    `2x + 3 = 8` is `4x + 6 = 16` and `x = 5/2`, `2x <= 4` is `x <= 2`.
    """
    difference, other = (_exactly(each.lhs - each.rhs) for each in (left, right))
    same, turned = type(left) is type(right), type(left) is type(right.reversed)
    ratio = sympy.simplify(difference / other) if other != 0 else sympy.nan
    if ratio.is_number and ratio.is_finite and ratio.is_nonzero:
        return same if ratio.is_positive or isinstance(left, Eq) else turned
    symbols = left.free_symbols
    if len(symbols) != 1 or symbols != right.free_symbols:
        return False
    if isinstance(left, Eq) and isinstance(right, Eq):
        solutions = [set(sympy.solve(each, *symbols)) for each in (difference, other)]
        return bool(solutions[0]) and solutions[0] == solutions[1]
    return left.as_set() == right.as_set()


def are_same_term(left: Any, right: Any) -> bool:
    """Tell whether two terms are equal one of which is a letter alone, or two chains of inequalities.

    math-verify compares only the letter's name, and only chains that are written in the same order.
    """
    if all(isinstance(each, sympy.Expr) for each in (left, right)):
        return (left.is_Symbol or right.is_Symbol) and sympy.simplify(left - right) == 0
    chains = all(isinstance(each, And) and len(each.free_symbols) == 1 for each in (left, right))
    return chains and left.free_symbols == right.free_symbols and left.as_set() == right.as_set()


def _same(left: Any, right: Any) -> bool:
    exact = [_exactly(left), _exactly(right)]
    if exact[0] == exact[1]:
        return True
    values = [sympy.N(each, _DIGITS) for each in exact]
    if not all(value.is_finite for value in values):
        return False
    rational = all(each.is_Rational for each in exact)
    if not rational and abs(values[0] - values[1]) <= _NEARLY * max(abs(values[0]), abs(values[1])):
        return True  # such as two forms of one root
    for decimal, other, value in ((left, right, values[1]), (right, left, values[0])):
        if _is_decimal(decimal) and not other.has(Float) and value.is_real:
            return is_rounded(_fraction(decimal), _last_digit(decimal), _fraction(value))
    return False


def _done(expression: Any) -> Any:
    try:
        return expression.doit()
    except Exception:  # whatever sympy raises on what can't be worked out
        return expression


def _exactly(expression: Any) -> Any:
    """Return an expression with each decimal as the fraction that it is written as."""
    return expression.xreplace({decimal: Rational(str(decimal)) for decimal in expression.atoms(Float)})


def _is_decimal(expression: Any) -> bool:
    return isinstance(expression, Float) or (-expression).is_Float


def _last_digit(decimal: Any) -> Fraction:
    """Return what the last digit of a decimal counts; zeros at its end are not known of."""
    return Fraction(10) ** int(Decimal(str(decimal)).normalize().as_tuple().exponent)


def _fraction(number: Any) -> Fraction:
    exact: Any = Rational(str(number))
    return Fraction(int(exact.p), int(exact.q))
