from tests.tasks.conftest import gpt_toy, roberta_toy, toy

__all__ = ["gpt_toy", "roberta_toy", "toy"]
