"""What commands print, and where."""

from __future__ import annotations

import pytest
import typer

from noisynet.cli.messages import fail, failing, say, show, show_table


def test_results_go_to_standard_output_and_messages_to_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show("a result")
    say("a message")
    assert tuple(capsys.readouterr()) == ("a result\n", "a message\n")


def test_the_columns_of_a_table_are_aligned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("a", "one " * 20), ("longer", "two")]
    show_table(("key", "meaning"), rows)
    assert capsys.readouterr().out.splitlines() == [
        "key     meaning",
        "a       " + ("one " * 20).strip(),
        "longer  two",
    ]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    show_table(("key", "meaning"), rows)
    wrapped = capsys.readouterr().out.splitlines()
    assert wrapped[1:3] == ["a       " + "one " * 7 + "one", "        " + "one " * 7 + "one"]


def test_only_the_named_errors_end_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, failing(ValueError, code=2):
        raise ValueError("wrong")
    assert (caught.value.exit_code, capsys.readouterr().err) == (2, "noisynet: wrong\n")
    with pytest.raises(KeyError), failing(ValueError):
        raise KeyError


@pytest.mark.parametrize("code", [1, 2])
def test_an_error_is_printed_line_by_line_and_exits(
    code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as caught:
        fail("one\ntwo", code)
    assert caught.value.exit_code == code
    assert tuple(capsys.readouterr()) == ("", "noisynet: one\nnoisynet: two\n")


def test_what_a_terminal_would_act_on_is_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    show("a\x1b[31mred\u202e\udcff\nb\té")
    show_table(("name", "state"), [["x\x07\ny", "z"]])
    say("\x9b2J")
    shown = capsys.readouterr()
    assert shown.out == "a\\x1b[31mred\\u202e\\udcff\nb\té\nname      state\nx\\x07\\ny  z\n"
    assert shown.err == "\\x9b2J\n"
