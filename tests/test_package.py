"""The wheel and the sdist: what is inside, what an index shows, and that an installed wheel runs.

`make package` names the files in NOISYNET_DIST and the interpreters in NOISYNET_PYTHONS; without
these the package is built here and installed for this interpreter.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from readme_renderer import markdown

ROOT = Path(__file__).parent.parent
PYTHONS = [sys.executable, *os.environ.get("NOISYNET_PYTHONS", "").split()]
RELATIVE = r'(?:src|href)="(?!https?://|mailto:|#)[^"]*"'


def run(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command that does not see this checkout's package."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**environment, "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel built from it; needs no network."""
    if made := os.environ.get("NOISYNET_DIST"):
        return ROOT / made
    folder = tmp_path_factory.mktemp("dist")
    ended = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def package_files() -> set[str]:
    """Every file of the package, data such as presets and pages included."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "noisynet").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    expected = package_files()
    assert {"noisynet/py.typed", "noisynet/experiments/throughput.json"} <= expected
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert inside == expected


def test_the_sdist_has_what_make_test_needs(dist: Path) -> None:
    (found,) = dist.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert package_files() <= inside
    assert {"Makefile", "pyproject.toml", "constraints.txt", "CITATION.cff"} <= inside
    assert {".github/workflows/ci.yml", "tests/test_package.py", "docs/results.md"} <= inside
    assert not any(name.startswith((".git/", ".venv/")) for name in inside)


def test_the_version_is_the_tag_and_without_one_the_newest_release(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())

    def version() -> str:
        return run(sys.executable, "-m", "hatchling", "version", cwd=tmp_path).stdout.strip()

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    newest = settings["version"]["fallback-version"]
    assert version() == newest  # an archive without .git
    git = ("git", "-c", "user.name=test", "-c", "user.email=test@localhost")
    run(*git, "init", cwd=tmp_path)
    run(*git, "add", ".", cwd=tmp_path)
    run(*git, "commit", "-m", "first", cwd=tmp_path)
    assert re.fullmatch(newest[:-1] + r"\d+\.dev1\+g\w+", version())  # a clone without tags
    run(*git, "tag", "v7.8.9", cwd=tmp_path)
    assert version() == "7.8.9"


def test_the_readme_renders_on_an_index_with_its_images_and_links(metadata: Message) -> None:
    assert metadata["Description-Content-Type"] == "text/markdown"
    description = metadata.get_payload()
    assert isinstance(description, str)
    page = markdown.render(description)
    own = markdown.render((ROOT / "README.md").read_text())
    assert page is not None
    assert own is not None
    assert re.findall(RELATIVE, page) == []
    assert page.count("<img") == own.count("<img") > 0
    tag = re.escape(f"v{metadata['Version']}")
    paths = re.findall(rf'"https://[\w.]+/noisynet/noisynet/(?:blob/)?{tag}/([^"#]*)', page)
    assert paths  # relative in the README itself
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_an_index_shows_the_links_and_pythons(metadata: Message) -> None:
    links = dict(line.split(", ") for line in metadata.get_all("Project-URL", []))
    assert links["Repository"] == "https://github.com/noisynet/noisynet"
    assert {"Documentation", "Changelog", "Issues"} <= set(links)
    classifiers = metadata.get_all("Classifier", [])
    for version in ("3.11", "3.12", "3.13"):
        assert f"Programming Language :: Python :: {version}" in classifiers


def install(python: str, wheel: Path, folder: Path) -> Path:
    """A fresh environment with the wheel, which sees the packages of `python`, and no network."""
    ended = run(python, "-m", "venv", "--without-pip", folder)
    if ended.returncode:
        pytest.skip(f"{python} makes no environments: {ended.stderr.strip()}")
    fresh = folder / "bin/python"
    pip = (sys.executable, "-m", "pip", "--python", fresh, "install", "--quiet")
    ended = run(*pip, "--no-deps", "--no-index", wheel)
    assert ended.returncode == 0, ended.stderr
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = run(python, "-c", where).stdout
    Path(run(fresh, "-c", where).stdout.strip(), "outside.pth").write_text(packages)
    return fresh


@pytest.mark.parametrize("python", PYTHONS)
def test_an_installed_wheel_runs(
    python: str, wheel: Path, metadata: Message, tmp_path: Path
) -> None:
    fresh = install(python, wheel, tmp_path / "fresh")
    lines = metadata.get_all("Requires-Dist", [])
    core = [re.split(r"[^\w.-]", line)[0] for line in lines if "extra ==" not in line]
    compiled = run(fresh, "-W", "error", "-m", "compileall", "-q", tmp_path / "fresh/lib")
    assert compiled.returncode == 0, compiled.stdout
    lookup = f"from importlib.util import find_spec; print([n for n in {core} if not find_spec(n)])"
    missing = run(fresh, "-c", lookup, cwd=tmp_path).stdout.strip()
    if missing != "[]":
        pytest.skip(f"{python} installed and compiled the wheel, but has no {missing} to run it")
    command = tmp_path / "fresh/bin/noisynet"
    assert run(command, "--version", cwd=tmp_path).stdout == f"noisynet {metadata['Version']}\n"
    assert "noisynet-dqn" in run(command, "agents", cwd=tmp_path).stdout
    code = (
        "from noisynet import NoisyLinear as N; import noisynet; print(N(3, 2), noisynet.__file__)"
    )
    ended = run(fresh, "-c", code, cwd=tmp_path)
    assert ended.stdout.startswith("NoisyLinear("), ended.stderr
    assert str(tmp_path / "fresh") in ended.stdout
