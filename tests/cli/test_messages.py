"""What commands print, and where."""

from __future__ import annotations

import pytest
import typer

from noisynet.cli.messages import fail, say, show


def test_results_go_to_standard_output_and_messages_to_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show("a result")
    say("a message")
    assert tuple(capsys.readouterr()) == ("a result\n", "a message\n")


@pytest.mark.parametrize("code", [1, 2])
def test_an_error_is_printed_line_by_line_and_exits(
    code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as caught:
        fail("one\ntwo", code)
    assert caught.value.exit_code == code
    assert tuple(capsys.readouterr()) == ("", "noisynet: one\nnoisynet: two\n")
