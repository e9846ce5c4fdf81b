"""Commands that check an agent or the installation: audit and doctor."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noisynet.cli.messages import fail, failing, say, show
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
            help=f"{_NOISY}; my_module:make_agent, a function of yours that returns a module, or "
            "(module, act, learn, evaluate), or a mapping of check_noise's arguments; or a file of "
            "another library: sb3:model.zip, torchrl:loss.pt, tianshou:algorithm.pt",
            autocompletion=complete_agents,
        ),
    ],
    environment: Environment = "atari/pong",
    settings: Settings = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Load a file of another library, which can run code.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check that an agent keeps the noise contract: which sample each pass uses.

    Exits with 1 if a check fails, and with 2 if the agent cannot be audited.
    """
    if settings and ":" in agent:
        fail(f"--set is for agents of noisynet, got {agent}", code=2)
    own = ":" not in agent
    report = _audit_configured(agent, environment, settings) if own else _audit_other(agent, trust)
    show(json.dumps(report.to_dict(), indent=2, ensure_ascii=False) if as_json else str(report))
    if not report.passed:
        raise typer.Exit(1)


def _audit_configured(agent: str, environment: str, settings: list[str] | None) -> NoiseReport:
    config = configure(agent, environment, settings=settings)
    from noisynet.agents import audit_agent, make_agent
    from noisynet.evaluation import make_configured_environment

    with failing(ValueError, ImportError, code=2), make_configured_environment(config, 1) as made:
        return audit_agent(make_agent(config, made.spec))


def _audit_other(name: str, trust: bool) -> NoiseReport:
    """Audit an agent of another library, or one that a function makes."""
    from noisynet.integrations import dispatch

    library, _, path = name.partition(":")
    is_name = all(part.isidentifier() for part in path.split("."))
    if library in dispatch.LIBRARIES or (path and not is_name):
        return _audit_file(library, Path(path), trust)
    with failing(ValueError, ImportError, code=2):
        function = dispatch.find_function(name)
    with _reporting_errors_of(name):
        made = function()
    with failing(ValueError, TypeError, ImportError, code=2):
        agent, options = dispatch.audit_arguments(made)
    with _reporting_errors_of(name):
        return dispatch.check_noise(agent, **options)


@contextmanager
def _reporting_errors_of(name: str) -> Iterator[None]:
    """Exit with 2 after an error of the user's code; 1 would say that a check failed."""
    try:
        yield
    except Exception as error:
        say(traceback.format_exc().rstrip())
        fail(f"{name} cannot be audited: it raised {type(error).__name__}", code=2)


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
