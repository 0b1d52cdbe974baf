import dataclasses

from microshard.plan import Inputs, build_plan
from microshard.run.result_recorder import AnswerBook
from tests.unit.plan.conftest import experiment, points


def _plan(counts, documents=1000):
    base = experiment(
        workload=[
            {"load": {"engine": "insert", "documents": documents}},
            {"measure": {"engine": "aggregate", "pipeline": [{"$count": "n"}]}},
        ]
    )
    return build_plan(base, points(base, counts), Inputs(cores=2))


def _result(answer, digest):
    return {"step": "r1", "phases": [{"name": "measure", "answer": answer, "answer_sha256": digest}]}


def test_sixteen_shards_must_answer_what_one_answered():
    one, sixteen = _plan([1, 16]).points
    book = AnswerBook()
    assert book.difference(one, _result([{"n": 1000}], "a")) is None
    assert book.difference(sixteen, _result([{"n": 1000}], "a")) is None
    message = book.difference(sixteen, _result([{"n": 999}], "b"))
    assert message is not None
    assert 'row 1: {"n": 1000} against {"n": 999}' in message
    assert "p01 (1 shard) r1" in message


def test_another_number_of_documents_is_another_question():
    book = AnswerBook()
    assert book.difference(_plan([1]).points[0], _result([{"n": 1000}], "a")) is None
    assert book.difference(_plan([1], documents=2000).points[0], _result([{"n": 2000}], "b")) is None


def test_rows_missing_are_said():
    book = AnswerBook()
    point = _plan([1]).points[0]
    book.difference(point, _result([1, 2], "a"))
    assert "2 rows against 1" in str(book.difference(point, _result([1], "b")))


def test_phases_without_an_answer_are_passed_over():
    point = dataclasses.replace(_plan([1]).points[0])
    assert AnswerBook().difference(point, {"phases": [{"name": "load", "answer": None, "answer_sha256": None}]}) is None
