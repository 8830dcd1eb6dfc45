"""The noise of pretraining and of its validation: an arm may train with other masks than those
under which all arms are validated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from plmctl.core.spelling import spell
from plmctl.runs.pair_sample import ACCURACY
from plmctl.study.plan import StudyPlan
from plmctl.study.unlike import explain_unlike

MARK = "‡"
MARKED = (
    "{mark} {metric}: {arms} and the baseline train with different noise. Their difference is of"
    " the models and of how near their noise is to that of validation."
)
Noise = Mapping[str, Mapping[str, Any]]  # {part: its settings}


def name_noises(plan: StudyPlan) -> dict[str, str]:
    """{metric of validation: `token_mask 0.15`, under which it is measured}."""
    return {name: _spell(column.validation) for name, column in _find_columns(plan).items()}


def list_noises(plan: StudyPlan) -> list[str]:
    """A line for each metric of validation: its noise, and that of the arms with another one."""
    return [column.describe(name) for name, column in _find_columns(plan).items()]


def find_other_noise(plan: StudyPlan) -> dict[str, list[str]]:
    """{metric of validation: the arms that train with other noise than the baseline}."""
    baseline = plan.study.baseline
    found = {n: column.list_unlike(baseline) for n, column in _find_columns(plan).items()}
    return {name: arms for name, arms in found.items() if arms}


def explain_other_noise(plan: StudyPlan) -> list[str]:
    """The notes below a table on its noise."""
    columns = _find_columns(plan)
    lines = [column.describe(name) for name, column in columns.items() if column.list_other()]
    return lines + [
        MARKED.format(mark=MARK, metric=name, arms=", ".join(arms))
        for name, column in columns.items()
        if (arms := column.list_unlike(plan.study.baseline))
    ]


class _Column(NamedTuple):
    """The noise of a metric's validation, one for all its arms, and that of their pretraining."""

    validation: Noise
    trained: Mapping[str, Noise]

    def list_other(self) -> dict[str, list[str]]:
        """{noise that is not that of validation: the arms that train with it}."""
        found = dict[str, list[str]]()
        for arm, noise in self.trained.items():
            if _spell(noise, self.validation) != _spell(self.validation):
                found.setdefault(_spell(noise, self.validation) or "no noise", []).append(arm)
        return found

    def list_unlike(self, baseline: str) -> list[str]:
        """The arms that train with other noise than the baseline."""
        own = self.trained
        return [arm for arm in own if baseline in own and own[arm] != own[baseline]]

    def describe(self, name: str) -> str:
        """The line on the metric of this name."""
        others = "; ".join(
            f"{noise}: {', '.join(arms)}" for noise, arms in self.list_other().items()
        )
        trained = f"; trained with {others}" if others else ""
        return f"{name}: validated under {_spell(self.validation)}{trained}"


def _find_columns(plan: StudyPlan) -> dict[str, _Column]:
    """{metric of validation with noise: its column}."""
    found = {}
    for name, metric in plan.study.metrics.items():
        configs = {
            arm: composed.pretrain
            for arm, composed in plan.arms.items()
            if composed.arm.pretrain and not explain_unlike(plan.study, plan.arms, metric, arm)
        }
        first = next(iter(configs.values()), None)
        if metric.validated and metric.key != ACCURACY and first and first["eval"]["noise"]:
            trained = {arm: config["noise"] or {} for arm, config in configs.items()}
            found[name] = _Column(first["eval"]["noise"], trained)
    return found


def _spell(noise: Noise, other: Noise | None = None) -> str:
    """`token_mask 0.15`: parts with their rates, and the numbers that are others in `other`."""
    return " and ".join(_spell_part(n, node, (other or {}).get(n, {})) for n, node in noise.items())


def _spell_part(name: str, node: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    rate = [spell(node["rate"])] if node.get("rate") is not None else []
    numbers = (key for key, value in node.items() if type(value) in (int, float) and key != "rate")
    changed = (
        f"{key}={spell(node[key])}" for key in numbers if node[key] != other.get(key, node[key])
    )
    return " ".join([name, *rate, *changed])
