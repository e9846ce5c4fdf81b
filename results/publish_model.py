"""Writes the weights of a finished run and their card to `models/`.

python results/publish_model.py runs/minatar/minatar/breakout/rainbow/seed-0
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any, Final

from collect import commit, commit_of
from studies import RESULTS, environment_title

from noisynet.envs import parse_environment
from noisynet.reports.agents import STYLES
from noisynet.runs import RunError, RunFolder

MODELS: Final = RESULTS.parent / "models"
EPISODES: Final = 100
"""The score of a card is the mean return of this many episodes."""
MAX_BYTES: Final = 2_000_000
"""Of a model."""


class PublishError(Exception):
    """A run cannot be published; the message is for the user."""


def load_agent(path: Path) -> Any:
    """The agent of a run folder or of a published file, with `evaluate` and `save`."""
    return importlib.import_module("noisynet").load(path)


def publish(
    run: Path, models: Path = MODELS, episodes: int = EPISODES, *, made_by: str = ""
) -> Path:
    """Write `<game>.safetensors` and `<game>.md` of a finished run; earlier ones are replaced.

    Args:
        run: its folder.
        models: where to write.
        episodes: played with noise and without, for the card.
        made_by: the commit that trained it, if the run does not name it; by default that of the
            imported noisynet.

    Returns:
        The card.

    Raises:
        PublishError: the run is not finished, or its weights are too large.
        RunError: it is no run folder.
    """
    folder = RunFolder(run)
    config, status = folder.read_config(), folder.read_status() or {}
    if status.get("state") != "finished":
        raise PublishError(f"expected a finished run, got one that is {status.get('state')}: {run}")
    game = parse_environment(config["environment"])[1]
    agent = load_agent(run)
    modes = (True, False) if STYLES[config["agent"]].noisy else (False,)
    played = {noise: agent.evaluate(episodes=episodes, noise=noise) for noise in modes}
    models.mkdir(exist_ok=True)
    weights, page = models / f"{game}.safetensors", models / f"{game}.md"
    agent.save(weights)
    size = weights.stat().st_size
    if size > MAX_BYTES:
        weights.unlink()
        raise PublishError(f"expected at most {MAX_BYTES:,} bytes of weights, got {size:,}: {run}")
    facts = {
        "agent": config["agent"],
        "environment": config["environment"],
        "frames": status["frames"],
        "seed": config["seed"],
        "commit": commit_of(folder) or made_by or commit(),
        "episodes": episodes,
    }
    for noise, result in played.items():
        name = "on" if noise else "off"
        facts[f"score_noise_{name}"] = round(result.mean, 3)
        facts[f"deviation_noise_{name}"] = round(result.standard_deviation, 3)
    page.write_text(card(weights.name, facts, command(run, config)))
    return page


def command(run: Path, config: dict[str, Any]) -> str:
    """The command that trained a run: the one in the sweep's log next to it, if there is one."""
    log = run.with_name(f"{run.name}.log")
    first = log.read_text().partition("\n")[0] if log.exists() else ""
    if " train " in first:
        arguments = first.partition(" train ")[2].split()
        kept = [*_without(arguments, ("--out", "--name", "--device"))]
        return " ".join(["noisynet train", *(word for word in kept if word != "--no-tensorboard")])
    return (
        f"noisynet train {config['agent']} {config['environment']} --frames {config['frames']} "
        f"--seed {config['seed']}, with the settings that the file contains"
    )


def _without(words: list[str], options: tuple[str, ...]) -> list[str]:
    """Words of a command without some options and their values."""
    dropped = {i + k for i, word in enumerate(words) if word in options for k in (0, 1)}
    return [word for i, word in enumerate(words) if i not in dropped]


def card(file: str, facts: dict[str, Any], trained_by: str) -> str:
    """The card of a model: the facts, which a test reads, then how to use it."""
    title = f"{STYLES[facts['agent']].title} on {environment_title(facts['environment'])}"
    scores = [
        f"| {mode} | {facts[f'score_noise_{mode}']:.2f} ± {facts[f'deviation_noise_{mode}']:.2f} |"
        for mode in ("on", "off")
        if f"score_noise_{mode}" in facts
    ]
    lines = [
        *("---", *(f"{key}: {value}" for key, value in facts.items()), "---", f"# {title}", ""),
        f"{facts['frames']:,} frames, seed {facts['seed']}, commit {facts['commit']}.",
        *("", f"| noise | return, mean ± standard deviation of {facts['episodes']} episodes |"),
        *("|---|---|", *scores, "", "Trained by:", "", f"    {trained_by}", "", "Use:", ""),
        "```python",
        "import noisynet",
        "",
        f'agent = noisynet.load("models/{file}")',
        "print(agent.evaluate(episodes=20))",
        "```",
    ]
    return "\n".join(lines) + "\n"


def read_card(page: Path) -> dict[str, str]:
    """The facts of a card, by name."""
    facts = page.read_text().split("---\n")[1].splitlines()
    return dict(line.split(": ", 1) for line in facts)


def main() -> None:
    """Publish a run from the command line."""
    parser = argparse.ArgumentParser(description="Write the weights and card of a run to models/")
    parser.add_argument("run", type=Path, help="the folder of a finished run")
    parser.add_argument("--commit", default="", help="that trained it, if the run names none")
    given = parser.parse_args()
    try:
        print(publish(given.run, made_by=given.commit))
    except (PublishError, RunError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
