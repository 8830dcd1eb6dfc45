"""The files that a hosting service reads, against those that they name: nothing here runs it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOW = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
JOBS: dict[str, Any] = yaml.safe_load(WORKFLOW)["jobs"]
STEPS = [step for job in JOBS.values() for step in job["steps"]]


def test_each_step_is_a_target_of_the_makefile_or_builds_the_container() -> None:
    targets = re.findall(r"^([\w-]+):.*##", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    lines = [step["run"] for step in STEPS if "run" in step]
    made = {line.split()[1] for line in lines if line.startswith("make ")}
    assert made == {"lint", "test", "wheel", "docs"}
    assert made <= {*targets}
    others = [line for line in lines if not line.startswith("make ")]
    assert all(line.startswith("docker ") for line in others)
    stages = re.findall(r"^FROM .* AS (\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert {*re.findall(r"--target (\w+)", "\n".join(others))} <= {*stages}


def test_it_tests_on_every_python_from_the_oldest_on() -> None:
    versions = JOBS["test"]["strategy"]["matrix"]["python"]
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert all(allowed.contains(each) for each in versions)
    assert not allowed.contains("3.10")
    own = {step["with"]["python-version"] for step in STEPS if "setup-python" in str(step)}
    assert own == {"3.11", "${{ matrix.python }}"}


def test_it_may_read_alone_and_ends_by_itself() -> None:
    assert yaml.safe_load(WORKFLOW)["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 90 for job in JOBS.values())
    used = [step for step in STEPS if "uses" in step]
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in used)
    taken = [step for step in used if "checkout" in step["uses"]]
    assert all(step["with"] == {"persist-credentials": False} for step in taken)


def test_updates_are_proposed_for_all_that_is_pinned() -> None:
    found = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text("utf-8"))["updates"]
    pinned = {"github-actions": WORKFLOW, "docker": "Dockerfile", "pip": "constraints.txt"}
    assert {each["package-ecosystem"] for each in found} == {*pinned}
    assert all((ROOT / each["directory"].strip("/")).is_dir() for each in found)
