"""The house rules that can be checked by reading the source."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "noisynet"
MODULES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in MODULES}

# What each room may import of ours; rooms that are not listed may import nothing of ours.
MAY_IMPORT = {
    "audit": {"layers"},
    "networks": {"layers", "losses", "paper"},
    "kernels": set(),
    "replay": {"runs"},
    "agents": {
        *("audit", "config", "kernels", "layers", "losses", "networks", "optimisers", "replay"),
        *("returns", "state_dicts"),
    },
    "evaluation": {"agents", "envs", "runs", "config"},
    "envs": {"extras", "lazy", "paper"},
    "loops": {
        *("agents", "config", "envs", "evaluation", "extras", "layers", "lazy", "optimisers"),
        *("replay", "runs", "state_dicts"),
    },
    "doctor": {"audit", "config", "envs", "layers", "loops", "runs"},
    "watch": {
        *("agents", "config", "envs", "evaluation", "extras", "layers", "loops", "networks"),
        "runs",
    },
    "experiments": {"envs", "extras", "runs", "config", "lazy"},
    "reports": {"envs", "extras", "lazy", "runs", "paper"},
    "integrations": {"audit", "config", "extras", "layers", "loops", "runs"},
    "pytest_plugin": {"audit", "integrations"},
    "dashboard": {"reports", "runs"},
    "config": {"paper", "envs"},
    "callbacks": {"loops"},
    "export": {"agents", "envs", "evaluation", "extras", "layers"},
    "player": {
        *("agents", "config", "envs", "evaluation", "export", "layers", "loops", "runs"),
        *("state_dicts", "watch"),
    },
    "api": {
        *("agents", "callbacks", "config", "envs", "evaluation", "integrations", "loops"),
        *("player", "runs"),
    },
    "sharing": {"api", "integrations", "runs", "watch"},
}
FREE = {"cli", "__init__", "__main__"}
PRINTS = {"cli"}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of_ours(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "noisynet":
            names = [f"noisynet.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("noisynet."))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_imports_point_one_way() -> None:
    wrong = {}
    for path, tree in TREES.items():
        if (here := room(path)) not in FREE:
            allowed = MAY_IMPORT.get(here, set()) | {here, "extras"}
            if extra := set(imports_of_ours(tree)) - allowed:
                wrong[module_name(path)] = f"imports {sorted(extra)}, may {sorted(allowed)}"
    assert not wrong


def imported_packages(path: Path) -> set[str]:
    """The top-level packages that a module imports, anywhere in it."""
    names: list[str] = []
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return {name.split(".")[0] for name in names}


def test_layers_need_torch_and_nothing_else() -> None:
    allowed = {"noisynet", "torch", *sys.stdlib_module_names}
    layers = [path for path in MODULES if room(path) == "layers"]
    assert layers
    for path in layers:
        assert imported_packages(path) <= allowed, module_name(path)


def test_only_kernels_import_numba() -> None:
    importing = {room(p) for p in MODULES if imported_packages(p) & {"numba", "llvmlite"}}
    assert importing == {"kernels"}


def test_kernels_are_at_most_700_lines() -> None:
    lines = [len(path.read_text().splitlines()) for path in MODULES if room(path) == "kernels"]
    assert 0 < sum(lines) <= 700


@pytest.mark.parametrize("path", [p for p in MODULES if p.name == "__init__.py"], ids=module_name)
def test_all_equals_what_is_imported(path: Path) -> None:
    tree = TREES[path]
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("noisynet")
        if node.module != "noisynet.lazy"
        for alias in node.names
        if node.module != "noisynet.extras"
    }
    module = importlib.import_module(module_name(path))
    listed = getattr(module, "__all__", [])
    assert set(listed) == imported
    assert len(listed) == len(set(listed))


def _is_overload(node: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list)


def public_definitions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            if isinstance(node, ast.FunctionDef) and _is_overload(node):
                continue  # the definition itself documents them all
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                        yield f"{node.name}.{inner.name}", inner


def undocumented(tree: ast.Module) -> Iterator[str]:
    """What lacks a docstring or a type among the public names of a module."""
    if not ast.get_docstring(tree):
        yield "the module has no docstring"
    for public, node in public_definitions(tree):
        assert isinstance(node, ast.FunctionDef | ast.ClassDef)
        if not ast.get_docstring(node):
            yield f"{public} has no docstring"
        if isinstance(node, ast.FunctionDef):
            if node.returns is None:
                yield f"{public} has no return type"
            for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
                if argument.arg not in ("self", "cls") and argument.annotation is None:
                    yield f"{public}({argument.arg}) has no type"


def test_every_public_name_is_typed_and_documented() -> None:
    lacks = {module_name(path): [*undocumented(tree)] for path, tree in TREES.items()}
    assert not {module: found for module, found in lacks.items() if found}


def test_nothing_prints_but_the_command_line() -> None:
    prints = [
        f"{module_name(path)}:{node.lineno}"
        for path, tree in TREES.items()
        if room(path) not in PRINTS
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not prints


def test_asserts_tell_types_only() -> None:
    """`python -O` removes them: `assert isinstance(…)` and `assert … is not None` are for mypy."""
    others = [
        f"{module_name(path)}:{node.lineno}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
        if not re.match(r"isinstance\(|[\w.]+ is not None$", ast.unparse(node.test))
    ]
    assert not others


def test_no_module_is_a_drawer() -> None:
    drawers = {"utils", "util", "common", "misc", "base", "helpers"}
    assert not [path for path in MODULES if path.stem in drawers]


def test_a_module_can_be_read_in_one_sitting() -> None:
    assert not [module_name(p) for p in MODULES if len(p.read_text().splitlines()) > 500]


def test_importing_noisynet_does_not_import_torch_until_a_layer_is_used() -> None:
    code = "import sys, noisynet; assert 'torch' not in sys.modules; noisynet.NoisyLinear(2, 2)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_public_surface_is_what_the_design_says() -> None:
    noisynet = importlib.import_module("noisynet")
    assert noisynet.__all__ == [
        "Agent",
        "Callback",
        "NoisyLSTMCell",
        "NoisyLinear",
        "check_noise",
        "load",
        "make_noisy",
        "make_plain",
        "noise_off",
        "record_noise",
        "resample_noise",
        "sigma_summary",
    ]
    for name in noisynet.__all__:
        assert inspect.getdoc(getattr(noisynet, name))
    with pytest.raises(AttributeError, match="no attribute 'NoisyConv'"):
        _ = noisynet.NoisyConv


def test_every_function_and_test_that_the_paper_map_names_exists() -> None:
    text = (ROOT / "docs" / "paper-map.md").read_text()
    names = re.findall(
        r"`((?:noisynet|tests|examples|benchmarks)/[\w/.]+?\.py)(?:::([\w.]+))?`", text
    )
    assert names
    for file, name in names:
        path = ROOT / file
        assert path.exists(), f"docs/paper-map.md names {file}, which is not there"
        for part in filter(None, name.split(".")):
            assert re.search(rf"(def|class) {part}\b|^{part}\b", path.read_text(), re.M), (
                f"docs/paper-map.md names {name} of {file}, which is not there"
            )


def test_every_module_has_a_test_file_of_its_name() -> None:
    inside = [path.relative_to(PACKAGE) for path in MODULES if not path.name.startswith("__")]
    mirrored = [ROOT / "tests" / path.parent / f"test_{path.name}" for path in inside]
    assert not [str(path.relative_to(ROOT)) for path in mirrored if not path.exists()]


# --- the walk -------------------------------------------------------------------------------------

TRANSITION = (
    "loops/off_policy.py",  # act, send, learn, receive, store
    "envs/atari.py",
    "agents/value.py",  # act and learn
    "replay/uniform.py",
    "losses.py",
    "layers/linear.py",  # the noise
)
ROLLOUT = (
    "loops/worker.py",  # copy weights, begin a roll-out, collect, learn, apply
    "loops/rollouts.py",
    "envs/atari.py",
    "agents/actor_critic.py",
    "agents/rollout.py",
    "returns.py",
    "losses.py",
    "layers/linear.py",
    "optimisers.py",
)


@pytest.mark.parametrize(
    ("files", "most_files", "most_lines"),
    [(TRANSITION, 6, 1_200), (ROLLOUT, 9, 1_800)],
    ids=["one transition", "one roll-out of A3C"],
)
def test_the_walk_is_short(files: tuple[str, ...], most_files: int, most_lines: int) -> None:
    lines = {file: len((PACKAGE / file).read_text().splitlines()) for file in files}
    assert len(lines) <= most_files
    assert sum(lines.values()) <= most_lines, lines


def test_the_walk_imports_no_kernels_at_module_level() -> None:
    for file in {*TRANSITION, *ROLLOUT}:
        assert "kernels" not in set(imports_of_ours(TREES[PACKAGE / file])), file
