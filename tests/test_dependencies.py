"""What can be imported and run without the optional packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BUNDLES = ("all", "dev", "docs")


def normalised(name: str) -> str:
    """The name of a package as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def without(blocked: set[str], code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `code` in a process where the modules `blocked` cannot be imported."""
    prefix = f"import sys; sys.modules.update(dict.fromkeys({sorted(blocked)!r}))\n"
    return subprocess.run(
        [sys.executable, "-c", prefix + code],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def modules_besides(*packages: str) -> set[str]:
    """The top-level modules of all installed packages but these and what they depend on."""
    kept: set[str] = set()
    waiting = list(packages)
    while waiting:
        name = normalised(waiting.pop())
        if name in kept:
            continue
        kept.add(name)
        try:
            required = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # of another platform
        waiting += [re.split(r"[^\w.-]", line)[0] for line in required if "extra ==" not in line]
    installed = metadata.packages_distributions()
    return {
        module
        for module, owners in installed.items()
        if not {normalised(owner) for owner in owners} & kept
    } - {"noisynet", *sys.stdlib_module_names}


def test_the_layers_need_torch_and_numpy_only(tmp_path: Path) -> None:
    blocked = modules_besides("torch", "numpy")
    assert {"gymnasium", "matplotlib", "numba", "pydantic", "rich", "safetensors"} <= blocked
    assert {"scipy", "tensorboard", "typer"} <= blocked
    code = (
        "import torch, noisynet.layers\n"
        "from noisynet import NoisyLinear, noise_off, resample_noise\n"
        "layer = NoisyLinear(3, 2)\n"
        "resample_noise(layer)\n"
        "with noise_off(layer): mean = layer(torch.ones(1, 3))\n"
        "assert not torch.equal(layer(torch.ones(1, 3)), mean)\n"
    )
    ended = without(blocked, code, tmp_path)
    assert ended.returncode == 0, ended.stderr
    refused = without(blocked, "import numba", tmp_path)
    assert "ModuleNotFoundError" in refused.stderr


def test_every_agent_trains_without_numba(tmp_path: Path) -> None:
    """With the compute `torch` and, as nothing else is there, `auto`."""
    arguments = [
        *("train", "noisynet-dqn", "gym/CartPole-v1", "--frames", "300", "--name", "run"),
        *("--set", "learning.starts_steps=64", "--no-tensorboard"),
        *("--set", "evaluation.period_frames=300", "--set", "evaluation.frames=50"),
    ]
    code = f"""
sys.path.insert(0, {str(ROOT / "tests")!r})
from agents.synthetic import act_rollout, make_actor_critic_agent, make_batch, make_value_agent
for compute in ("torch", "auto"):
    agent = make_value_agent("noisynet-dueling", compute=compute)
    agent.learn(make_batch())
    worker = make_actor_critic_agent("noisynet-a3c", compute=compute)
    worker.learn(act_rollout(worker))
    assert agent.compute == worker.compute == "torch"
from noisynet.cli import app
app({arguments!r})
"""
    ended = without({"numba", "llvmlite"}, code, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "compute torch" in ended.stderr
    assert "finished: 300 frames" in ended.stderr


def test_the_doctor_needs_no_extra(tmp_path: Path) -> None:
    core = ("torch", "numpy", "safetensors", "pydantic", "typer", "rich", "filelock")
    ended = without(
        modules_besides(*core),
        "from noisynet import doctor; doctor._train_with_workers = lambda: 'left out'\n"
        "from noisynet.cli import app; app(['doctor'])",
        tmp_path,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "FAIL" not in ended.stdout


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def test_the_core_is_small() -> None:
    names = {re.split(r"[^\w.-]", line)[0] for line in project()["dependencies"]}
    assert names == {"filelock", "numpy", "pydantic", "rich", "safetensors", "torch", "typer"}


def test_every_extra_that_the_code_names_exists_and_belongs_to_all() -> None:
    extras = project()["optional-dependencies"]
    (everything,) = extras["all"]
    assert everything == f"noisynet[{','.join(name for name in extras if name not in BUNDLES)}]"
    named = {
        name
        for path in (ROOT / "noisynet").rglob("*.py")
        for pattern in (r'\bextra\("([\w-]+)"\)', r'import_extra\([^()]+, "([\w-]+)"\)')
        for name in re.findall(pattern, path.read_text())
    }
    assert {"atari", "gym", "minatar", "report", "tensorboard", "video"} <= named <= set(extras)


def test_every_direct_dependency_is_pinned() -> None:
    lines = project()["dependencies"]
    for name, required in project()["optional-dependencies"].items():
        lines = lines + (required if name != "all" else [])
    pinned = {
        normalised(line.partition("==")[0])
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    assert {normalised(re.split(r"[^\w.-]", line)[0]) for line in lines} <= pinned
