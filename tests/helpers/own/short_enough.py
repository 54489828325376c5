"""A metric made of a plain function."""

from langchain_rageval import metric


@metric(reads={"answer"}, aspect="style")
def short_enough(sample):
    """Say whether the answer has at most 300 characters."""
    return len(sample.answer) <= 300
