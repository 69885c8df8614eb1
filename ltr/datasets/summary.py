"""The counts that a data module logs of its lists."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ListSummary:
    """What a data set holds; `str()` of it is the line that the data modules log.

    Attributes:
        lists: how many lists there are.
        documents: how many documents they hold together.
        features: how many features a document has.
        longest: the length of the longest list.
        without_relevant: lists without a document of label > 0; they are kept. None where there
            are no labels.
        of_one: lists of one document; they are kept.
    """

    lists: int
    documents: int
    features: int
    longest: int
    without_relevant: int | None
    of_one: int

    def __str__(self) -> str:
        relevant = "there are no labels"
        if self.without_relevant is not None:
            relevant = f"{self.without_relevant} have no relevant document"
        return (
            f"{self.lists} lists, {self.documents} documents, {self.features} features; "
            f"the longest list has {self.longest} documents, {relevant}, "
            f"{self.of_one} have one document (all are kept)"
        )
