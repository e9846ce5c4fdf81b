"""`noisynet export` and `noisynet push`."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file

from noisynet import load

from .calling import invoke


def test_a_run_is_exported_and_the_comparison_is_shown(
    trained: tuple[Path, str], tmp_path: Path
) -> None:
    pytest.importorskip("onnxscript")
    ended = invoke("export", str(trained[0]), "-o", str(tmp_path / "agent.onnx"))
    assert ended.exit_code == 0, ended.output
    assert "input   observation: float32 [batch, 16]" in ended.output
    assert "equal to the agent on 1,000 observations" in ended.output
    assert (tmp_path / "agent.onnx").exists()


def test_a_model_is_exported_with_one_noise_sample(
    trained: tuple[Path, str], tmp_path: Path
) -> None:
    model = load(trained[0]).save(tmp_path / "model.safetensors")
    output = tmp_path / "agent.pt2"
    ended = invoke("export", str(model), "-o", str(output), "--noise-seed", "7")
    assert ended.exit_code == 0, ended.output
    assert output.exists()


def test_the_network_alone_is_shown_and_written(trained: tuple[Path, str], tmp_path: Path) -> None:
    output = tmp_path / "network.safetensors"
    ended = invoke("export", str(trained[0]), "--network", "-o", str(output))
    assert ended.exit_code == 0, ended.output
    assert "Linear(in_features=16" in ended.stdout
    assert "Noisy" not in ended.stdout
    assert "head.q.0.weight" in load_file(output)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "agent.tflite"), "expected .onnx or .pt2, got 'agent.tflite'"),
        (("-o", "agent.onnx", "--network"), "with --network expected .safetensors"),
    ],
)
def test_other_endings_are_refused(arguments: tuple[str, ...], message: str) -> None:
    ended = invoke("export", "no-such-run", *arguments)
    assert ended.exit_code == 2
    assert message in ended.output


def test_what_is_no_agent_is_named(tmp_path: Path) -> None:
    missing = invoke("export", str(tmp_path / "missing"), "-o", str(tmp_path / "agent.pt2"))
    assert missing.exit_code == 2
    assert "missing does not exist" in missing.output
    (tmp_path / "text").write_text("no agent")
    other = invoke("export", str(tmp_path / "text"), "-o", str(tmp_path / "agent.pt2"))
    assert other.exit_code == 1
    assert "expected a file that Agent.save wrote" in other.output


def test_push_refuses_a_name_that_is_no_repository(trained: tuple[Path, str]) -> None:
    ended = invoke("push", str(trained[0]), "name")
    assert ended.exit_code == 2
    assert "expected a repository as user/name, got 'name'" in ended.output


def test_push_names_a_folder_that_is_no_run(tmp_path: Path) -> None:
    ended = invoke("push", str(tmp_path), "someone/name")
    assert ended.exit_code == 1
    assert "expected a run folder" in ended.output
