from microshard.experiment.errors import DefinitionError, Problem, printable, render
from tests.unit.experiment.lab import BASE, Lab


def test_a_problem_shows_its_line_with_a_caret_under_the_place(lab: Lab) -> None:
    (problem,) = lab.problems(BASE.replace("count: 2", "cuont: 2"))
    assert str(problem).removeprefix(f"{lab.file.parent}/") == (
        "x.yml:4:12: topology.shards.cuont: unknown key; did you mean `count`? "
        "(allowed here: count, initial, members)\n"
        "    4 |   shards: {cuont: 2}\n"
        "      |            ^"
    )


def test_the_parts_of_a_problem_can_be_had_one_by_one(lab: Lab) -> None:
    (problem,) = lab.problems(BASE + "order: {policy: sequentiel}\n")
    assert (problem.line, problem.column, problem.key_path) == (9, 17, "order.policy")
    assert problem.found == 'the text "sequentiel"'
    assert problem.allowed == "one of interleaved, sequential, random"
    assert problem.nearest == "sequential"
    assert problem.file == str(lab.file)


def test_the_caret_stays_under_its_place_in_a_long_line() -> None:
    line = "x" * 500 + "HERE" + "y" * 500
    text = str(Problem("f.yml", 3, 501, "k", "m", source_line=line)).splitlines()
    assert len(text[1]) < 120
    assert text[1][text[2].index("^")] == "H"


def test_control_characters_of_a_file_never_reach_the_terminal() -> None:
    problem = Problem("f.yml", 1, 1, "a\x1b[31mb\u202e", "m", source_line="a\x1b[31mb\u202e: 1")
    assert "\x1b" not in str(problem)
    assert "\u202e" not in str(problem)


def test_printable_shortens_to_its_limit() -> None:
    assert printable("a" * 100, 10) == "a" * 9 + "…"
    assert printable("a" * 10, 10) == "a" * 10


def test_problems_are_sorted_by_line_once_each_and_the_command_line_last() -> None:
    def problem(line: int, file: str = "f.yml") -> Problem:
        return Problem(file, line, 1, "", "m")

    error = DefinitionError([problem(0, "--set"), problem(9), problem(2), problem(9)])
    assert [(p.file, p.line) for p in error.problems] == [("f.yml", 2), ("f.yml", 9), ("--set", 0)]


def test_several_problems_are_counted_at_the_end() -> None:
    problems = [Problem("f.yml", n, 1, "", "m") for n in range(1, 4)]
    assert render(problems).splitlines()[-1] == "3 errors"
    assert render(problems[:1]) == "f.yml:1:1: m"
    warning = Problem("f.yml", 1, 1, "k", "m", severity="warning")
    assert render([warning, *problems]).splitlines()[0] == "f.yml:1:1: warning: k: m"
    assert render([warning, *problems]).splitlines()[-1] == "4 problems, 3 errors"


def test_a_flood_of_problems_is_cut_with_their_number() -> None:
    problems = [Problem("f.yml", n, 1, "", "m") for n in range(1, 1001)]
    text = render(problems).splitlines()
    assert text[-2:] == ["… and 950 more", "1000 errors"]
    assert len(text) == 52
