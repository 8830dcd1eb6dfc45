"""Strategies on fitness functions that nothing trains, against tables, loops and Optuna itself."""

import hashlib
import itertools
import json
import math
from collections.abc import Callable

import numpy as np
import pytest

from plmctl.core.errors import UsageError
from plmctl.search.course import Course
from plmctl.search.settings import SettingsSpace
from plmctl.search.strategies import optuna as models
from plmctl.search.strategies.asha import Asha
from plmctl.search.strategies.evolution import Evolution
from plmctl.search.strategies.grid import GridSearch
from plmctl.search.strategies.halving import Halving, list_brackets, list_rungs
from plmctl.search.strategies.hurdles import Hurdles
from plmctl.search.strategies.random import RandomSearch
from plmctl.search.strategy import SearchStep, SearchStrategy, StepResult

SPACE = ("lr=log(1e-5,1e-1)", "w=int(interval(1,64))", "act=relu,gelu,silu")
Score = Callable[[SearchStep], float]


def score(step: SearchStep) -> float:
    """A bowl around lr 1e-3, w 32, gelu, which longer trainings come nearer to."""
    point = step.point
    far = abs(math.log10(point["lr"]) + 3) + abs(point["w"] - 32) / 32
    return -far - (point["act"] != "gelu") * 0.3 - 9 / step.updates


def make(strategy: SearchStrategy, most: int | None = None, **more: object) -> Course:
    space = SettingsSpace(more.pop("words", SPACE))  # type: ignore[arg-type]
    settings = {"seed": 3, "full": 27, "most_individuals": most, **more}
    return Course(space, strategy, **settings)  # type: ignore[arg-type]


def run(course: Course, score: Score = score, order: int | None = None) -> Course:
    """Run a course to its end; results come in any order, by the seed `order`."""
    waiting: list[SearchStep] = []
    random = np.random.default_rng(order)
    while not course.over:
        waiting += [step for step in course.advance() if step.number not in course.results]
        if waiting:
            step = waiting.pop(0 if order is None else int(random.integers(len(waiting))))
            before = [s.updates for s in course.individuals[step.individual].steps[:-1]]
            updates = step.updates - max(before, default=0)
            course.take(step.number, StepResult((score(step),), updates))
    return course


def spell(course: Course) -> str:
    """The sha256 of all steps."""
    lines = [[s.individual, s.updates, s.parent, dict(s.point), s.told] for s in course.steps]
    return hashlib.sha256(json.dumps(lines).encode()).hexdigest()


MAKERS: dict[str, Callable[[], SearchStrategy]] = {
    "random": RandomSearch,
    "aging": lambda: Evolution(8, 3),
    "worst": lambda: Evolution(8, 3, "worst"),
    "hurdles": lambda: Hurdles(8, 3, stage=6),
    "halving": lambda: Halving(least=1, count=20),
    "hyperband": lambda: Halving(least=3, brackets="all"),
    "asha": Asha,
    "tpe": lambda: models.tpe(startup=4),
    "cmaes": models.cmaes,
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_course_that_is_killed_comes_to_the_same_list(name: str) -> None:
    """Killed after every third of its results: rebuilt from these alone, it proposes the same."""
    pytest.importorskip("optuna")
    whole = run(make(MAKERS[name](), 20))
    results: dict[int, StepResult] = {}
    while True:
        course = make(MAKERS[name](), 20)
        course.results |= results
        fresh = 0
        while not course.over and fresh < 1 + len(whole.steps) // 3:
            for step in course.advance():
                if step.number not in course.results:
                    fresh += 1
                    result = StepResult((score(step),), step.updates)
                    course.take(step.number, result)
                    results[step.number] = result
                    if fresh >= 1 + len(whole.steps) // 3:
                        break
        if course.over:
            break
    assert spell(course) == spell(whole)
    assert len(whole.individuals) >= 9


@pytest.mark.parametrize("name", ["random", "worst", "hurdles", "asha", "halving", "tpe"])
def test_the_order_of_arrival_changes_nothing(name: str) -> None:
    pytest.importorskip("optuna")
    lists = {spell(run(make(MAKERS[name](), 18, parallel=3), order=n)) for n in range(3)}
    assert len(lists) == 1
    assert lists != {spell(run(make(MAKERS[name](), 18, parallel=1)))}


def test_a_step_knows_the_results_before_it_in_their_order() -> None:
    course = run(make(RandomSearch(), 12, parallel=4), order=1)
    assert [step.told for step in course.steps] == [max(0, n - 3) for n in range(12)]


def test_the_table_of_hyperband() -> None:
    """R = 81, eta = 3 (Li et al., 2018, table 1)."""
    table = [(81, 1), (34, 3), (15, 9), (8, 27), (5, 81)]
    brackets = list_brackets(1, 3, 81)
    assert [(bracket.count, bracket.rungs[0]) for bracket in brackets] == table
    assert brackets[0].rungs == (1, 3, 9, 27, 81)
    assert list_rungs(2, 4, 100) == (2, 8, 32, 100)


def test_halving_keeps_the_best_of_each_rung() -> None:
    """By sorting all that have come to a rung."""
    random = np.random.default_rng(0)
    table = {(n, u): float(random.normal()) for n in range(30) for u in (1, 3, 9, 27)}
    course = run(
        make(Halving(least=1, count=30)), lambda step: table[step.individual, step.updates]
    )
    alive = list(range(30))
    for updates in (1, 3, 9, 27):
        trained = [s.individual for s in course.steps if s.updates == updates]
        assert sorted(trained) == sorted(alive)
        order = sorted(alive, key=lambda n: (-table[n, updates], n))
        alive = order[: len(alive) // 3]
    assert len(course.steps) == 30 + 10 + 3 + 1


def test_asha_promotes_as_the_paper_says() -> None:
    """Algorithm 2 as a loop over all rungs, with the results so far."""
    random = np.random.default_rng(1)
    table = {(n, u): float(random.normal()) for n in range(80) for u in (3, 9, 27)}
    table[5, 3] = -math.inf  # a failed one counts in its rung
    course = run(make(Asha(least=3), 40), lambda step: table[step.individual, step.updates])
    rungs: list[dict[int, float]] = [{}, {}, {}]
    promoted: list[set[int]] = [set(), set()]
    begun = 0
    for step in course.steps:
        expected = None
        for k in (1, 0):
            order = sorted(rungs[k], key=lambda n: (-rungs[k][n], n))
            free = [n for n in order[: len(rungs[k]) // 3] if n not in promoted[k]]
            if free:
                promoted[k].add(free[0])
                expected = (free[0], (9, 27)[k])
                break
        if expected is None:
            expected = (begun, 3)
            begun += 1
        assert (step.individual, step.updates) == expected
        rungs[(3, 9, 27).index(step.updates)][step.individual] = table[expected]
    assert begun == 40
    assert promoted[1]


def test_hurdles_are_those_of_the_paper() -> None:
    """So et al. (2019), algorithm 1, as a loop: hurdles, updates of each child, all updates."""
    fitness = {(n, u): math.sin(7.3 * n) + u / 9 for n in range(40) for u in (3, 9, 27)}
    strategy = Hurdles(population=10, sample=4, leaves="oldest", updates=(3, 9, 27), stage=10)
    course = run(make(strategy, 40), lambda step: fitness[step.individual, step.updates])
    hurdles: list[float] = []
    trained: list[int] = []
    alive: list[int] = []
    for child in range(40):
        rung = 0
        while rung < len(hurdles) and fitness[child, (3, 9, 27)[rung]] > hurdles[rung]:
            rung += 1
        trained.append((3, 9, 27)[rung])
        alive = [*alive, child][-10:]
        if (child + 1) % 10 == 0 and len(hurdles) < 2:
            most = max(trained[n] for n in alive)
            equal = [fitness[n, most] for n in alive if trained[n] == most]
            hurdles.append(sum(equal) / len(equal))
    assert [each.updates for each in course.individuals] == trained
    assert [level for _, level in strategy.levels(course.individuals)] == pytest.approx(hurdles)
    assert course.count_updates() == sum(trained)
    assert len(set(trained)) == 3


@pytest.mark.parametrize("leaves", ["oldest", "worst"])
def test_tournaments_choose_the_best_of_a_sample(leaves: str) -> None:
    """A child differs from its parent in one setting; who leaves is drawn as the seed says."""
    course = run(make(Evolution(6, 3, leaves), 40))  # type: ignore[arg-type]
    alive: list[int] = []
    for each in course.individuals:
        if each.number >= 6:
            assert each.parent is not None
            parent = course.individuals[each.parent]
            assert sum(each.point[key] != parent.point[key] for key in each.point) == 1
            drawn = np.random.default_rng([3, each.number]).integers(len(alive), size=3)
            fitness = {n: course.individuals[n].fitness for n in alive}
            best = max((alive[i] for i in drawn), key=lambda n: (fitness[n], -n))
            assert each.parent == best
        alive.append(each.number)
        if len(alive) > 6 and leaves == "oldest":
            alive.pop(0)
        elif len(alive) > 6:
            random = np.random.default_rng([3, each.number, 1])
            drawn = random.integers(len(alive), size=3)
            fitness = {n: course.individuals[n].fitness for n in alive}
            alive.pop(min(drawn, key=lambda i: (fitness[alive[i]], i)))
    assert (
        max(each.fitness for each in course.individuals)
        > max(  # type: ignore[type-var]
            each.fitness for each in course.individuals[:6]
        )
    )


def test_named_points_are_the_first_individuals() -> None:
    space = SettingsSpace(["a=range(100)"], {"x": {"a": 7}, "y": {"a": 3}})
    course = run(
        Course(space, Evolution(4, 2, start=("y", "x")), seed=0, full=1, most_individuals=6),
        lambda step: step.point["a"],
    )
    assert [each.point["a"] for each in course.individuals[:2]] == [3, 7]
    why = Evolution(4, 2, start=("yy",)).problems(space, 1)
    assert why is not None
    assert "did you mean 'y'" in why


def test_a_grid_is_every_point_once() -> None:
    words = ["a=1,2,3", "b=x,y"]
    course = run(make(GridSearch(), words=words), lambda step: step.point["a"])
    points = [(each.point["a"], each.point["b"]) for each in course.individuals]
    assert points == list(itertools.product((1, 2, 3), "xy"))
    assert course.end == "The strategy has nothing more to propose."
    assert "intervals" in (GridSearch().problems(SettingsSpace(["a=interval(0,1)"]), 1) or "")


def test_a_small_space_is_drawn_without_repetition() -> None:
    course = run(make(RandomSearch(), words=["a=1,2,3", "b=1,2"]), lambda step: 0.0)
    points = {tuple(each.point.values()) for each in course.individuals}
    assert len(course.individuals) == len(points) == 6


def test_the_budget_of_updates_is_never_exceeded() -> None:
    course = run(make(Hurdles(8, 3, stage=6), most_updates=400))
    assert 400 - 27 < course.count_updates() <= 400
    assert course.end == "The budget of updates is spent."


@pytest.mark.parametrize("count", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_proposals_of_tpe_are_those_of_optuna(count: int) -> None:
    """A loop over Optuna's own ask and tell, with a sampler of the same seed for each trial."""
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    course = run(make(models.tpe(), count))
    kinds = {
        "lr": optuna.distributions.FloatDistribution(1e-5, 1e-1, log=True),
        "w": optuna.distributions.IntDistribution(1, 64),
        "act": optuna.distributions.CategoricalDistribution([0, 1, 2]),
    }
    study = optuna.create_study(direction="minimize")
    for number, individual in enumerate(course.individuals):
        seed = int(np.random.SeedSequence([3, number]).generate_state(1)[0])
        study.sampler = optuna.samplers.TPESampler(
            seed=seed, multivariate=True, constant_liar=False, n_startup_trials=10
        )
        trial = study.ask(kinds)
        own = {**trial.params, "act": ("relu", "gelu", "silu")[trial.params["act"]]}
        assert own == individual.point
        assert individual.fitness is not None
        study.tell(trial, -individual.fitness[0])
    assert len(course.individuals) == count


def test_several_goals_make_a_front() -> None:
    pytest.importorskip("optuna")
    for strategy in (Evolution(8, 3), models.tpe(startup=4)):
        course = make(strategy, 24, goals=2)
        while not course.over:
            for step in course.advance():
                fitness = (score(step), -float(step.point["w"]))
                course.take(step.number, StepResult(fitness, 27))
        assert len(course.individuals) == 24


def test_refusals_count_and_do_not_train() -> None:
    """Narrow models only: the others are refused at once, and do not use up the budget."""
    worst = StepResult((-math.inf,), 0, "refused", "w is above 16")
    settle = lambda step: worst if step.point["w"] > 16 else None  # noqa: E731
    course = run(make(Evolution(5, 2), 10, settle=settle))
    kinds = [course.results[step.number].kind for step in course.steps]
    assert kinds.count("trained") == 10
    assert kinds.count("refused") > 0
    trained = [each for each in course.individuals if each.fit]
    assert all(each.point["w"] <= 16 for each in trained)
    with pytest.raises(UsageError, match=r"first 100 individuals were refused.*above 16"):
        run(make(RandomSearch(), 10, settle=lambda step: worst))


def test_an_equal_individual_is_not_trained_again() -> None:
    pytest.importorskip("optuna")
    course = run(make(models.tpe(startup=2), 12, words=["a=1,2"]), lambda s: s.point["a"])
    kinds = [course.results[step.number].kind for step in course.steps]
    assert kinds.count("trained") == 2
    assert kinds.count("copied") == 10
