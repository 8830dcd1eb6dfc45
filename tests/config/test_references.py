"""References in settings: worked out by ourselves where they are of the usual kinds, they have the
values that OmegaConf gives them, and its messages.
"""

from __future__ import annotations

from typing import Any

import pytest

from plmctl.config.compose import compose
from plmctl.config.references import UnresolvedReference, _ask_omegaconf, _Unusual, _Usual, work_out
from plmctl.config.spec import thaw

SIZE = {"size": {"width": 96, "share": 0.25, "rate": 1e-05, "off": None, "name": "small"}}
PART = {"part": {"inner": {"a": "${..depth}", "b": [1, "${size.width}"]}, "depth": "${size.share}"}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${size.width}", 96),
        ("${size.rate}", 1e-05),
        ("${size.off}", None),
        ("${size}", SIZE["size"]),
        ("${part.inner}", {"a": 0.25, "b": [1, 96]}),
        ("${other.inner.a}", 0.25),  # through a group that is only referred to
        ("${.beside}", 7),
        ("${..size.width}", 96),
        ("${portion:0.5,${size.width}}", 48),
        ("${portion:${size.share}, ${size.width}, 7}", 21),
        ("${quotient:2048,${portion:${part.inner.a},${size.width}}}", 85),
        ("${cycle:3,null,${size.width}}", [None, 96, None]),
        ("${cycle:2,160000.0,1e4,true}", [160000.0, 1e4]),
        ("${oc.select:size.width,7}", 96),
        ("${oc.select:size.off,7}", None),
        ("${oc.select:size.none,1e-12}", 1e-12),
        ("${oc.select:size.none,gelu}", "gelu"),
        ("${oc.select:size.none,null}", None),
        ("${oc.select:none.none,true}", True),
        ("width ${size.width} of ${size.rate}", "width 96 of 1e-05"),
        ("$5 or {}", "$5 or {}"),
    ],
)
def test_the_usual_ones_are_worked_out_here_and_as_omegaconf_does(text: str, value: Any) -> None:
    settings = {**SIZE, **PART, "other": "${part}", "group": {"beside": 7, "it": text}}
    found = _Usual(settings).work_out()
    assert found == _ask_omegaconf(settings)
    assert found["group"]["it"] == value
    assert type(found["group"]["it"]) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a ${size.name} one", "a small one"),
        ("${oc.decode:'[1, ${size.width}]'}", [1, 96]),
        ("${oc.select:size.none,[1,2]}", [1, 2]),
        (r"\${size.width}", "${size.width}"),
        ("${part.inner.b[1]}", 96),
        ("${oc.env:NO_SUCH_NAME,8}", "8"),
    ],
)
def test_all_others_are_left_to_omegaconf(text: str, value: Any) -> None:
    settings = {**SIZE, **PART, "it": text}
    with pytest.raises(_Unusual):
        _Usual(settings).work_out()
    assert work_out(settings)["it"] == value


@pytest.mark.parametrize(
    ("settings", "path", "reason"),
    [
        ({"it": "${size.none}"}, "it", "Interpolation key 'size.none' not found"),
        ({"it": {"a": "${nothing}"}}, "it.a", "Interpolation key 'nothing' not found"),
        ({"it": "${portion:half,${size.width}}"}, "it", "ValueError raised while resolving"),
        ({"it": "${unknown:1}"}, "it", "Unsupported interpolation type unknown"),
        ({"it": "${size.width"}, "it", "no viable|mismatched|missing"),
        ({"it": "${needed}", "needed": "???"}, "it", "MissingMandatoryValue|to a missing value"),
        ({"a": "${b}", "b": "${a}"}, "a", "recursion|Recursive|circular"),
        ({"a": {"b": "${a.b}"}}, "a.b", "recursion|Recursive|circular"),
        ({"it": "${oc.select:other,1}", "other": "${none}"}, "", "key 'none' not found"),
    ],
)
def test_mistakes_are_told_as_omegaconf_tells_them(
    settings: dict[str, Any], path: str, reason: str
) -> None:
    with pytest.raises(UnresolvedReference, match=reason) as told:
        work_out({**SIZE, **settings})
    assert told.value.path == path or not path


def test_what_nothing_refers_to_is_not_asked_for() -> None:
    settings = {"data": {"path": "???"}, 3: "a", "sizes": (1, {"a": []}), "all": "${data}"}
    made = {"data": {"path": "???"}, "3": "a", "sizes": [1, {"a": []}], "all": {"path": "???"}}
    assert work_out(settings) == made


@pytest.mark.parametrize("recipe", ["electra", "kepler", "evolved_transformer", "unilm"])
def test_recipes_are_worked_out_here_and_as_omegaconf_does(recipe: str) -> None:
    written = thaw(compose("pretrain", recipe).provenance.written)
    assert _Usual(written).work_out() == _ask_omegaconf(written)
