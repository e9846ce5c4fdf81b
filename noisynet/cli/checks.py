"""Commands that check an agent or the installation: audit and doctor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noisynet.cli.messages import fail, failing, show
from noisynet.cli.options import Environment, Settings, complete_agents, configure
from noisynet.config import AGENT_SPECS

if TYPE_CHECKING:
    from noisynet.audit import NoiseReport

_NOISY = ", ".join(spec.name for spec in AGENT_SPECS.values() if spec.noisy)


def audit(
    agent: Annotated[
        str,
        typer.Argument(
            metavar="AGENT",
            help=f"{_NOISY}; or a file of another library: sb3:model.zip, torchrl:loss.pt, "
            "tianshou:algorithm.pt",
            autocompletion=complete_agents,
        ),
    ],
    environment: Environment = "atari/pong",
    settings: Settings = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Load a file of another library, which can run code.")
    ] = False,
) -> None:
    """Check that an agent keeps the noise contract: which sample each pass uses."""
    library, colon, path = agent.partition(":")
    if colon:
        report = _audit_file(library, Path(path), trust)
    else:
        config = configure(agent, environment, settings=settings)
        from noisynet.agents import audit_agent, make_agent
        from noisynet.evaluation import make_configured_environment

        with (
            failing(ValueError, ImportError, code=2),
            make_configured_environment(config, 1) as made,
        ):
            report = audit_agent(make_agent(config, made.spec))
    show(str(report))
    if not report.passed:
        raise typer.Exit(1)


def _audit_file(library: str, path: Path, trust: bool) -> NoiseReport:
    """Audit an agent of another library."""
    if not path.is_file():
        fail(f"expected a file after {library}:, got {path}, which does not exist", code=2)
    if not trust:
        fail(
            f"{path} contains pickles, and loading a pickle can run any code. Load it only if you "
            "trust its author: add --trust",
            code=2,
        )
    from noisynet import integrations

    with failing(ValueError, TypeError, ImportError, code=2):
        return integrations.check_noise(integrations.load_agent(library, path))


def doctor() -> None:
    """Show what is installed, whether the games load, and run a short self-test."""
    from noisynet.doctor import examine

    healthy = True
    for finding in examine():
        healthy = healthy and finding.ok
        show(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.subject:<17}{finding.result}")
    if not healthy:
        raise typer.Exit(1)
