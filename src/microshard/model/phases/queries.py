"""Keys of the engine `queries`."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints

from microshard.model.base import AllowedText, Model, Namespace
from microshard.model.phase import EstimateBasis, PhaseContext, PhaseKeys

SCAN_SECONDS_PER_DOCUMENT = 1.0e-6  # a filter over a warm cache, one shard on one core
JAVASCRIPT_SECONDS_PER_DOCUMENT = 1.2e-5  # $where and $function, mongod 6.0

FormName = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,40}$"),
    AllowedText("a name of lower-case letters, digits, _ and -"),
]


class Form(Model):
    """One form of a question: a filter, whose matches are counted, or a pipeline that counts them itself."""

    asks: Annotated[str, Field(min_length=1, max_length=200)]
    """The question in words; forms that ask the same must count the same."""
    filter: dict[str, Any] | None = None
    """Counted by the command `count`, where `$where` is allowed."""
    pipeline: list[dict[str, Any]] | None = None
    """Stages that end in one document with the field `count`, or in none for a count of 0."""
    index: Annotated[dict[str, Literal[1, -1]], Field(min_length=1, max_length=32)] | None = None
    """An index that exists only while this form is measured."""

    def _contradictions(self) -> Iterator[str]:
        if (self.filter is None) == (self.pipeline is None):
            yield "filter: a form has either a filter or a pipeline"


class QueriesPhase(PhaseKeys):
    """Count documents by one of several forms of a question, and time it."""

    assumptions: ClassVar[tuple[str, ...]] = (
        f"queries: {SCAN_SECONDS_PER_DOCUMENT * 1e6:g} µs a document, "
        f"with JavaScript {JAVASCRIPT_SECONDS_PER_DOCUMENT * 1e6:g} µs",
    )

    engine: Literal["queries"]
    """queries: one count after the other, then its plan."""
    namespace: Namespace = "lab.pairs"
    """Collection to query."""
    forms: Annotated[dict[FormName, Form], Field(min_length=1, max_length=100)]
    """The forms, by name."""
    form: FormName
    """The form of this measurement; an axis of the matrix goes through them."""
    iterations: Annotated[int, Field(ge=1, le=10_000)] = 3
    """Timed queries in one repetition; their median is the repetition's figure."""
    warm_up_iterations: Annotated[int, Field(ge=0, le=1000)] = 1
    """Queries before the first timed one."""

    def _contradictions(self) -> Iterator[str]:
        if self.form not in self.forms:
            yield f"form: no form is named {self.form}; known: {', '.join(self.forms)}"

    def parameters(self, context: PhaseContext) -> dict[str, Any]:
        """All keys; of the forms only the chosen one."""
        given = super().parameters(context)
        return given | {"forms": {self.form: given["forms"][self.form]}}

    def seconds(self, expected: EstimateBasis) -> float:
        """By the time of a scan; JavaScript takes ten times as long."""
        form = self.forms[self.form]
        javascript = any(word in str(form) for word in ("$where", "$function", "$accumulator"))
        each = JAVASCRIPT_SECONDS_PER_DOCUMENT if javascript and not form.index else SCAN_SECONDS_PER_DOCUMENT
        return (self.iterations + self.warm_up_iterations + 1) * expected.documents * each / expected.workers

    def question(self) -> Any:
        """The question, whatever the form."""
        return {"namespace": self.namespace, "asks": self.forms[self.form].asks}

    def figures(self) -> tuple[str, ...]:
        """The metric, and the further figures."""
        return ("query time", "keys examined", "documents examined")


KEYS = QueriesPhase
