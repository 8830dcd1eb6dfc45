"""Spaces of settings: their values, draws, changes and words."""

import itertools
import math
import re

import numpy as np
import pytest

from plmctl.core.errors import UsageError
from plmctl.search.dimension import Interval, Layouts
from plmctl.search.layouts import parse_grammar
from plmctl.search.settings import SettingsSpace
from plmctl.search.space import compute_point_key

WORDS = (
    *("size=tiny,mini", "optim.lr=log(1e-5,1e-3)", "train.batch_size=range(8,33,8)"),
    *("model.layers=int(interval(1,3))", "model.stack.layout=tag(layout,choice('(af|fa){2}g?'))"),
)


def random(number: int = 0) -> np.random.Generator:
    return np.random.default_rng(number)


def test_words_are_read_as_hydra_reads_them() -> None:
    space = SettingsSpace(["a=1,2", "b=x,'y z',null", "c=[1,2],{d:e}", "g=true", "+h.i=range(3)"])
    values = {key: list(each.values() or ()) for key, each in space.dimensions.items()}
    assert values == {
        "a": [1, 2],
        "b": ["x", "y z", None],
        "c": [[1, 2], {"d": "e"}],
        "g": [True],
        "+h.i": [0, 1, 2],
    }
    point = {"a": 1, "b": "y z", "c": {"d": "e"}, "g": True, "+h.i": 2}
    assert space.overrides(point) == ("a=1", "b=y z", "c={d:e}", "g=true", "+h.i=2")
    assert space.problems(point) is None
    assert "a=3 is not in the space" in (space.problems({**point, "a": 3}) or "")


def test_a_value_that_is_there_twice_is_one() -> None:
    words = ["a=1e-3,1e-3,0.001,1e-2", "b=1,true,1.0,x,x", "c=[1,2],[1,2]", "d=range(2)"]
    values = {k: list(v.values() or ()) for k, v in SettingsSpace(words).dimensions.items()}
    assert values == {"a": [0.001, 0.01], "b": [1, True, "x"], "c": [[1, 2]], "d": [0, 1]}
    assert [type(value) for value in values["b"]] == [int, bool, str]


def test_tables_have_four_digits_of_a_number() -> None:
    space = SettingsSpace(["a=interval(0,1)", "b=log(1e-6,1)", "c=int(interval(1,99999))", "d=x"])
    point = {"a": 0.123456, "b": 1.23456e-6, "c": 12345, "d": "x"}
    assert space.brief(point) == "a=0.1235 b=1.235e-06 c=12345 d=x"
    assert space.overrides(point)[0] == "a=0.123456"


def test_points_are_the_product_in_the_order_of_the_words() -> None:
    space = SettingsSpace(["a=1,2", "b=int(interval(3,5))", "c=tag(layout,choice('x|y'))"])
    expected = [{"a": a, "b": b, "c": c} for a, b, c in itertools.product((1, 2), (3, 4, 5), "xy")]
    assert list(space.points() or ()) == expected
    assert SettingsSpace(["a=1,2", "b=interval(0,1)"]).points() is None


def test_draws_are_even_in_the_scale_of_the_interval() -> None:
    generator = random()
    rates = [Interval(1e-5, 1e-3, log=True).draw(generator) for _ in range(4000)]
    assert all(1e-5 <= rate <= 1e-3 for rate in rates)
    # each of ten equal parts of the logarithm has a tenth: within five deviations of 400
    parts = np.histogram(np.log10(rates), 10, (-5, -3))[0]
    assert np.abs(parts - 400).max() < 5 * math.sqrt(400 * 0.9)
    wholes = [Interval(2, 5, whole=True).draw(generator) for _ in range(4000)]
    assert np.abs(np.bincount(wholes)[2:] - 1000).max() < 5 * math.sqrt(1000 * 0.75)


def test_a_change_is_one_setting_and_stays_in_the_space() -> None:
    space, generator = SettingsSpace(WORDS), random(1)
    point, changed = space.draw(generator), set()
    for _ in range(300):
        new = space.mutate(point, generator)
        differing = [key for key in point if point[key] != new[key]]
        assert len(differing) == 1
        assert space.problems(new) is None
        changed |= set(differing)
        point = new
    assert changed == set(space.dimensions)


def test_a_point_is_a_function_of_the_generator() -> None:
    draws = [SettingsSpace(WORDS).draw(random(7)) for _ in range(2)]
    assert draws[0] == draws[1]
    assert compute_point_key(draws[0]) == compute_point_key(dict(reversed(draws[0].items())))
    assert compute_point_key(draws[0]) != compute_point_key({**draws[0], "size": "none"})


@pytest.mark.parametrize("text", ["(af|fa){2,3}g?", "a*12", "(a|b|)f{2}", "((a|f){1,2}c)?af"])
def test_layouts_are_those_of_the_regular_expression(text: str) -> None:
    """By trying every text of its letters: a star is a letter here, and none of an expression."""
    expression = re.compile(text.replace("*", r"\*"))
    letters = sorted(set(re.findall(r"[a-z*]|\d(?![,}])", text)))
    every = {
        "".join(tried)
        for length in range(8 if len(letters) < 4 else 6)
        for tried in itertools.product(letters, repeat=length)
    }
    expected = {tried for tried in every if expression.fullmatch(tried)}
    layouts = Layouts(text)
    assert expected
    assert set(layouts.values() or ()) & every == expected
    assert {tried for tried in every if layouts.holds(tried)} == expected
    drawn = {layouts.draw(generator) for generator in map(random, range(400))}
    assert drawn <= set(layouts.values() or ())
    assert len(drawn) > len(expected) / 2


@pytest.mark.parametrize("text", ["(af", "af)", "{2}a", "a{3,2}", "?"])
def test_a_broken_grammar_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="'"):
        parse_grammar(text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "at least"),
        (["lr=log(0,1)"], "logarithm of 0"),
        (["lr=interval(2,1)"], r"2\.0 is above 1\.0"),
        (["lr=log(1"], "cannot be read"),
        (["a=1,2", "a=3"], "twice"),
        (["l=tag(layout,choice('(a'))"], "not closed"),
    ],
)
def test_words_that_make_no_space_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SettingsSpace(words)


def test_named_points_are_those_of_the_space() -> None:
    words = ["a=1,2", "b=interval(0,1)"]
    assert SettingsSpace(words, {"x": {"a": 1, "b": 0.5}}).seeds() == {"x": {"a": 1, "b": 0.5}}
    with pytest.raises(UsageError, match="b=2 is not in the space"):
        SettingsSpace(words, {"x": {"a": 1, "b": 2}})
