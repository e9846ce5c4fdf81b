"""Commands that take an agent elsewhere: export and push."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noisynet.cli.messages import fail, failing, say, show
from noisynet.cli.options import Run, check_run

if TYPE_CHECKING:
    from noisynet.api import Agent

Model = Annotated[
    str,
    typer.Argument(
        metavar="RUN|MODEL", help="A run folder, a file of Agent.save, or hf://user/name."
    ),
]


def export(
    model: Model,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file: agent.onnx or agent.pt2.")
    ] = Path("agent.onnx"),
    noise_seed: Annotated[
        int | None, typer.Option(help="Draw one fixed noise sample; default: the mean weights.")
    ] = None,
    network: Annotated[
        bool,
        typer.Option(
            "--network",
            help="Write the weights of the network in plain PyTorch layers: network.safetensors.",
        ),
    ] = False,
) -> None:
    """Write an agent as a file that runs without noisynet, and check it on 1,000 observations."""
    suffixes = (".safetensors",) if network else (".onnx", ".pt2")
    if output.suffix not in suffixes:
        what = "the ending of --output" + (" with --network" if network else "")
        fail(f"{what} expected {' or '.join(suffixes)}, got {str(output)!r}", code=2)
    agent = _load(model)
    from noisynet.envs import EnvironmentFailed

    with failing(EnvironmentFailed, ValueError, ImportError, OSError):
        if network:
            from noisynet.export import export_network

            show(str(export_network(agent.network, output, noise_seed)))
            say(f"weights of this network: {output}")
            return
        made = agent.export(output, noise_seed=noise_seed)
    for line in made.inputs:
        say(f"input   {line}")
    say(f"outputs {', '.join(made.outputs)}")
    say(
        f"equal to the agent on {made.observations:,} observations, up to {made.difference:.1g}: "
        f"{made.path}"
    )


def push(
    run: Run,
    repository: Annotated[
        str, typer.Argument(metavar="USER/NAME", help="The repository, made if it is missing.")
    ],
    video: Annotated[bool, typer.Option(help="Render the best episode.")] = True,
    private: Annotated[
        bool, typer.Option("--private", help="Make a new repository private.")
    ] = False,
) -> None:
    """Share a run on the Hugging Face Hub: weights, settings, evaluations, video and model card."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        fail(f"expected a repository as user/name, got {repository!r}", code=2)
    check_run(run)
    from noisynet.envs import EnvironmentFailed
    from noisynet.runs import RunError
    from noisynet.sharing import push

    with failing(RunError, EnvironmentFailed, ValueError, ImportError):
        for note in push(run, repository, video=video, private=private):
            say(note)
    show(f"hf://{repository}")


def _load(model: str) -> Agent:
    if not model.startswith("hf://") and not Path(model).exists():
        fail(f"expected a run folder or a file of Agent.save, {model} does not exist", code=2)
    from noisynet.api import load
    from noisynet.runs import RunError

    with failing(RunError, ValueError, ImportError):
        return load(model, device="cpu")
