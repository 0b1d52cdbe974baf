"""Right results: every measurement's answer is the same at every point."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from microshard.model.plan import Point


@dataclass(slots=True)
class AnswerBook:
    """Remembers the first answer to each question and compares all later ones with it.

    Points answer the same question when everything that decides the answer is the same: the data loaded
    (data set, documents, seed) and the query. The topology never decides it.
    """

    first: dict[str, tuple[str, str, Any]] = field(default_factory=dict)  # question → where, digest, answer

    def differs(self, point: Point, result: dict[str, Any]) -> str | None:
        """A sentence on how this answer differs from the first one, or None when it does not."""
        sentences = []
        for phase in result.get("phases", []):
            digest = phase.get("answer_sha256")
            if not digest:
                continue
            question = self._question(point, phase["name"])
            here = f"{point.id} ({point.label}) {result.get('step', '')}".strip()
            where, known, answer = self.first.setdefault(question, (here, digest, phase.get("answer")))
            if known != digest:
                difference = _difference(answer, phase.get("answer"))
                sentences.append(f"{phase['name']}: the answer differs from that of {where}: {difference}")
        return "; ".join(sentences) or None

    @staticmethod
    def _question(point: Point, phase: str) -> str:
        data = [p.data for p in point.phases if p.data is not None]
        query = next((p.question for p in point.phases if p.name == phase), None)
        return json.dumps([data, phase, query], sort_keys=True, default=str)


def _difference(first: Any, second: Any) -> str:
    if not isinstance(first, list) or not isinstance(second, list):
        return f"{_short(first)} against {_short(second)}"
    if len(first) != len(second):
        return f"{len(first)} rows against {len(second)}"
    for number, (a, b) in enumerate(zip(first, second, strict=True), start=1):
        if a != b:
            return f"row {number}: {_short(a)} against {_short(b)}"
    return "in the order of keys only"


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 120 else text[:117] + "…"
