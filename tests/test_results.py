"""The studies in `results/`: plans, committed data, figures, tables and the page."""

from __future__ import annotations

import importlib
import io
import json
import math
import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from noisynet.experiments import build_plan
from noisynet.reports.agents import Contender
from noisynet.reports.plotting import figure_style
from noisynet.runs.provenance import describe_machine

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
PLANS = sorted(path.parent.name for path in RESULTS.glob("*/plan.toml"))


@pytest.fixture(autouse=True)
def _as_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.syspath_prepend(RESULTS)


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


def load_synthetic(study: str, results: Path, **changes: Any) -> Any:
    """A study of synthetic runs; a few sizes and seeds of Deep Sea."""
    synthetic = script("synthetic_results")
    runs = synthetic.synthetic_runs(study, **changes)
    if study.startswith("deep-sea"):
        runs = [run for run in runs if run.size in (4, 10, 20) and run.seed < 3]
    synthetic.write_study(results, study, runs)
    return script("studies").load_study(study, results)


# --- plans and committed data --------------------------------------------------------------------


def test_every_plan_is_a_study_and_valid() -> None:
    assert set(PLANS) == set(script("studies").STUDIES)
    for study in PLANS:
        assert build_plan(str(RESULTS / study / "plan.toml"), out=Path("runs")).specs


@pytest.mark.parametrize(
    ("study", "game"),
    [(s, "breakout") for s in ("rainbow", "controls", "sigma0")]
    + [("controls-freeway", "freeway")],
)
def test_studies_share_runs_with_identical_settings(study: str, game: str) -> None:
    plans = [build_plan(str(RESULTS / s / "plan.toml"), out=Path("r")) for s in ("minatar", study)]
    first, second = ({spec.name: spec.config for spec in plan.specs} for plan in plans)
    common = first.keys() & second.keys()
    assert f"minatar/{game}/noisynet-dqn/seed-0" in common
    assert all(first[name] == second[name] for name in common)


def test_the_data_of_all_studies_are_small() -> None:
    studies = script("studies")
    assert sum(p.stat().st_size for p in RESULTS.glob("*/data.jsonl")) <= studies.MAX_BYTES


def test_committed_data_are_of_the_plan_and_round_trip() -> None:
    studies = script("studies")
    for study in PLANS:
        found = studies.load_study(study)
        if found is None:
            continue
        assert found.provenance["plan"] == studies.plan_digest(RESULTS / study / "plan.toml"), (
            f"{study}: the plan was changed after its runs; run it again as a whole"
        )
        collections = found.provenance["collections"]
        assert sum(one["runs"] for one in collections) == len(found.runs)
        names = [name for one in collections for name in one.get("names", ())]
        assert len(set(names)) == (len(found.runs) if len(collections) > 1 else 0)
        text = (RESULTS / study / "data.jsonl").read_text()
        assert "".join(f"{run.line()}\n" for run in found.runs) == text


def test_the_page_is_that_of_the_data() -> None:
    """Run `make results` if this fails."""
    redraw = script("redraw")
    page, studies = redraw.PAGE.read_text(), redraw.load()
    assert redraw.updated(page, studies) == page
    blocks = set(re.findall(r"<!-- results: ([\w-]+) -->", page))
    in_blocks = {"deep-sea" if name in redraw.DEEP_SEA else name for name in PLANS}
    assert blocks == in_blocks | set(script("claims").CLAIMS) | {"published", "simple-policies"}


def test_simple_policies_play_as_stored() -> None:
    """Run `python results/simple_policies.py` if this fails."""
    simple = script("simple_policies")
    stored = json.loads((RESULTS / simple.FILE).read_text())
    for row, played in zip(stored, simple.play(episodes=2), strict=True):
        assert len(row["returns"]) == simple.EPISODES
        assert {**row, "returns": row["returns"][:2]} == played


def test_figures_are_drawn_from_the_committed_data() -> None:
    """Run `make results` if this fails."""
    redraw, studies = script("redraw"), script("studies")
    folder = redraw.PAGE.parent / redraw.FIGURES
    linked = set(re.findall(r"\(results/([\w-]+\.png)\)", redraw.PAGE.read_text()))
    assert linked == {path.name for path in folder.glob("*.png")}
    for path in folder.glob("*.png"):
        assert path.stat().st_size < script("result_figures").MAX_BYTES
        name = path.stem.removesuffix("-sigma")
        of = redraw.DEEP_SEA if name == "deep-sea" else (name,)
        with Image.open(path) as image:
            assert image.info["Source"] == " ".join(filter(None, map(studies.digest, of)))


# --- collecting ----------------------------------------------------------------------------------


def write_runs(out: Path, study: str, names: dict[str, list[float]], **changes: Any) -> None:
    """Runs of a plan with these scores, as training writes them."""
    specs = {s.name: s for s in build_plan(str(RESULTS / study / "plan.toml"), out=out).specs}
    for name, scores in names.items():
        spec = specs[name]
        spec.folder.mkdir(parents=True)
        config = spec.config.model_dump(mode="json") | changes
        (spec.folder / "config.json").write_text(json.dumps(config))
        rows: list[dict[str, Any]] = []
        for number, score in enumerate(scores, start=1):
            frames = number * spec.config.evaluation.period_frames
            sigma = {"head.q.0": 0.1, "head.q.2": 0.2 / number}
            mean = None if number == 1 else score - 1
            train = {"kind": "train", "frames": frames - 1, "score_mean_100": mean, "sigma": sigma}
            rows.append(train)
            rows += [
                {"kind": "evaluation", "frames": frames, "noise": noise, "score": score + shift}
                | {"completed": number > 1}
                for noise, shift in (("on", 0.0), ("off", 1 / 3))
            ]
        lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
        (spec.folder / "metrics.jsonl").write_text(lines)
        timing = {"kind": "train", "seconds": 1800.0, "steps_per_second": 1.0}
        (spec.folder / "timing.jsonl").write_text(json.dumps(timing) + "\n")
        done = len(scores) * spec.config.evaluation.period_frames >= spec.frames
        state = {"state": "finished" if done else "interrupted", "updated": "2026-01-01"}
        (spec.folder / "status.json").write_text(json.dumps({**state, "frames": spec.frames}))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of results with the plan of a study and no data."""
    folder = tmp_path / "results" / "rainbow"
    folder.mkdir(parents=True)
    (folder / "plan.toml").write_bytes((RESULTS / "rainbow" / "plan.toml").read_bytes())
    return folder.parent


DONE = "minatar/breakout/noisynet-dqn/seed-1"
HALF = "minatar/breakout/noisynet-dqn/seed-0"


def test_collecting_names_the_commits_that_made_the_runs(tmp_path: Path, results: Path) -> None:
    """Studies share runs, which need not have been made by one version."""
    scores, other = [1.0] * 10, "minatar/breakout/noisynet-dqn/seed-2"
    made_by = describe_machine("cpu") | {"commit": "a" * 40}
    write_runs(tmp_path / "runs", "rainbow", {HALF: scores})
    write_runs(tmp_path / "runs", "rainbow", {DONE: scores, other: scores}, made_by=[made_by])
    collect, studies = script("collect"), script("studies")
    collect.collect(tmp_path / "runs", "rainbow", results, made_by="0123")
    (source,) = studies.load_study("rainbow", results).provenance["collections"]
    assert source["commit"] == "a" * 12
    assert source["other_commits"] == {"0123": [HALF]}


def test_a_run_that_another_commit_resumed_has_both(tmp_path: Path, results: Path) -> None:
    made_by = [describe_machine("cpu") | {"commit": letter * 40} for letter in "ab"]
    write_runs(tmp_path / "runs", "rainbow", {DONE: [1.0] * 10}, made_by=made_by)
    script("collect").collect(tmp_path / "runs", "rainbow", results)
    (source,) = script("studies").load_study("rainbow", results).provenance["collections"]
    assert source["commit"] == "aaaaaaaaaaaa and bbbbbbbbbbbb"
    assert source["other_commits"] == {}


def test_collecting_keeps_evaluations_and_sigma_and_says_what_is_missing(
    tmp_path: Path, results: Path
) -> None:
    scores = [float(n) for n in range(1, 11)]
    write_runs(tmp_path / "runs", "rainbow", {DONE: scores, HALF: scores[:4]})
    collect, studies = script("collect"), script("studies")
    collect.collect(tmp_path / "runs", "rainbow", results, made_by="0123")
    study = studies.load_study("rainbow", results)
    (run,) = study.runs
    assert (run.agent, run.seed, run.finished, run.score_noise) == ("noisynet-dqn", 1, True, "on")
    assert list(run.scores["on"]) == scores
    assert run.scores["off"][0] == 1.33333  # six significant digits
    assert run.incomplete == {"on": [1], "off": [1]}
    assert [run.sigma["head.q.2"][i] for i in (0, -1)] == [0.2, 0.02]
    (source,) = study.provenance["collections"]
    assert (source["runs"], source["commit"]) == (1, "0123")
    assert "names" not in source  # all runs of the data
    assert source["hours"] == {"training": 1.0, "evaluation": 0.0}
    assert study.provenance["unfinished"] == [HALF]
    assert len(study.provenance["missing"]) == 10
    files = [
        (results / "rainbow" / name).read_bytes() for name in ("data.jsonl", "provenance.json")
    ]
    collect.collect(tmp_path / "runs", "rainbow", results, made_by="0123")
    assert files == [
        (results / "rainbow" / n).read_bytes() for n in ("data.jsonl", "provenance.json")
    ]
    collect.collect(tmp_path / "runs", "rainbow", results, unfinished=True)
    both = studies.load_study("rainbow", results).runs
    assert [(one.seed, one.finished, len(one.curve)) for one in both] == [
        (0, False, 4),
        (1, True, 10),
    ]


def test_the_returns_of_training_games_are_kept_where_evaluations_are_short(
    tmp_path: Path, results: Path
) -> None:
    collect, studies = script("collect"), script("studies")
    (results / "pong").mkdir()
    (results / "pong" / "plan.toml").write_bytes((RESULTS / "pong" / "plan.toml").read_bytes())
    scores = [float(n) for n in range(1, 17)]
    write_runs(tmp_path / "runs", "pong", {"atari/pong/a3c/seed-0": scores})
    collect.collect(tmp_path / "runs", "pong", results)
    (run,) = studies.load_study("pong", results).runs
    assert np.isnan(run.training[0])
    assert list(run.training[1:]) == [score - 1 for score in scores[1:]]
    write_runs(tmp_path / "others", "rainbow", {DONE: scores[:10]})
    collect.collect(tmp_path / "others", "rainbow", results)
    assert not studies.load_study("rainbow", results).runs[0].training.size


def test_collecting_refuses_other_settings_and_empty_folders(tmp_path: Path, results: Path) -> None:
    collect = script("collect")
    write_runs(tmp_path / "runs", "rainbow", {DONE: [1.0] * 10}, compute="torch")
    with pytest.raises(collect.CollectError, match="compute: the folder has 'torch', the plan"):
        collect.collect(tmp_path / "runs", "rainbow", results)
    with pytest.raises(collect.CollectError, match="got 0 finished, 0 unfinished, 12 missing"):
        collect.collect(results, "rainbow", results)
    with pytest.raises(collect.CollectError, match="which is no folder"):
        collect.collect(tmp_path / "nothing", "rainbow", results)
    assert not (results / "rainbow" / "data.jsonl").exists()


OTHER = "minatar/breakout/noisynet-c51/seed-0"


def collect_from(machine: Path, results: Path, names: dict[str, float], **options: Any) -> str:
    """Collect finished runs with these scores from the folder of another machine."""
    write_runs(machine, "rainbow", {name: [score] * 10 for name, score in names.items()})
    said: str = script("collect").collect(machine, "rainbow", results, **options)
    return said


def test_collecting_keeps_the_finished_runs_of_other_machines(
    tmp_path: Path, results: Path
) -> None:
    collect_from(tmp_path / "first", results, {DONE: 1.0, OTHER: 1.0}, made_by="first")
    said = collect_from(tmp_path / "second", results, {HALF: 2.0}, made_by="second")
    assert said.endswith("0 unfinished, 9 missing; 2 kept from earlier collections")
    study = script("studies").load_study("rainbow", results)
    assert [(run.agent, run.seed, run.curve[0]) for run in study.runs] == [
        ("noisynet-dqn", 0, 2.0),
        ("noisynet-dqn", 1, 1.0),
        ("noisynet-c51", 0, 1.0),
    ]
    assert study.provenance["finished"] == 3
    assert not {DONE, HALF, OTHER} & set(study.provenance["missing"])
    first, second = study.provenance["collections"]
    assert (first["runs"], first["names"], first["commit"]) == (2, [DONE, OTHER], "first")
    assert first["hours"] == {"training": 1.0, "evaluation": 0.0}
    assert (second["runs"], second["names"], second["commit"]) == (1, [HALF], "second")
    assert second["hours"] == {"training": 0.5, "evaluation": 0.0}


def test_runs_that_are_found_replace_those_of_earlier_collections(
    tmp_path: Path, results: Path
) -> None:
    collect_from(tmp_path / "first", results, {HALF: 1.0, DONE: 1.0}, made_by="first")
    collect_from(tmp_path / "second", results, {OTHER: 2.0}, made_by="second")
    collect_from(tmp_path / "third", results, {DONE: 3.0, OTHER: 3.0}, made_by="third")
    study = script("studies").load_study("rainbow", results)
    assert [run.curve[0] for run in study.runs] == [1.0, 3.0, 3.0]
    assert [(one["commit"], one["names"]) for one in study.provenance["collections"]] == [
        ("first", [HALF]),
        ("third", [DONE, OTHER]),
    ]
    collect_from(tmp_path / "fourth", results, {HALF: 4.0, DONE: 4.0, OTHER: 4.0})
    (source,) = script("studies").load_study("rainbow", results).provenance["collections"]
    assert source["runs"] == 3
    assert "names" not in source


def test_a_collection_names_only_commits_of_runs_that_it_still_has(
    tmp_path: Path, results: Path
) -> None:
    made_by = describe_machine("cpu") | {"commit": "a" * 40}
    write_runs(tmp_path / "first", "rainbow", {OTHER: [1.0] * 10}, made_by=[made_by])
    collect_from(tmp_path / "first", results, {DONE: 1.0, HALF: 1.0}, made_by="first")
    collect_from(tmp_path / "second", results, {DONE: 2.0, HALF: 2.0}, made_by="second")
    first, _ = script("studies").load_study("rainbow", results).provenance["collections"]
    assert (first["names"], first["commit"], first["other_commits"]) == ([OTHER], "a" * 12, {})


def test_an_unfinished_run_does_not_replace_a_finished_one(tmp_path: Path, results: Path) -> None:
    collect_from(tmp_path / "first", results, {HALF: 1.0}, made_by="first")
    write_runs(tmp_path / "second", "rainbow", {HALF: [2.0] * 4})
    collect, studies = script("collect"), script("studies")
    with pytest.raises(collect.CollectError, match="got 0 finished, 1 unfinished, 11 missing"):
        collect.collect(tmp_path / "second", "rainbow", results, unfinished=True)
    collect_from(tmp_path / "second", results, {DONE: 2.0}, unfinished=True)
    study = studies.load_study("rainbow", results)
    assert [(run.seed, run.finished, run.curve[0]) for run in study.runs] == [
        (0, True, 1.0),
        (1, True, 2.0),
    ]
    assert study.provenance["unfinished"] == []


def test_an_unfinished_run_is_not_kept(tmp_path: Path, results: Path) -> None:
    write_runs(tmp_path / "first", "rainbow", {HALF: [1.0] * 4})
    collect_from(tmp_path / "first", results, {DONE: 1.0}, unfinished=True)
    collect_from(tmp_path / "second", results, {OTHER: 2.0})
    study = script("studies").load_study("rainbow", results)
    assert [run.finished for run in study.runs] == [True, True]
    assert HALF in study.provenance["missing"]


def test_the_runs_of_a_changed_plan_are_dropped(tmp_path: Path, results: Path) -> None:
    collect_from(tmp_path / "first", results, {DONE: 1.0, OTHER: 1.0}, made_by="first")
    plan = results / "rainbow" / "plan.toml"
    plan.write_text("# A comment is no change.\n" + plan.read_text())
    assert "2 kept" in collect_from(tmp_path / "second", results, {HALF: 2.0})
    plan.write_text(plan.read_text().replace("seeds = 3", "seeds = 2"))
    said = collect_from(tmp_path / "third", results, {DONE: 3.0}, made_by="third")
    assert said.endswith("7 missing; the plan was changed: its 3 earlier runs were dropped")
    study = script("studies").load_study("rainbow", results)
    assert [run.curve[0] for run in study.runs] == [3.0]
    assert [one["commit"] for one in study.provenance["collections"]] == ["third"]


def test_the_page_names_every_collection(tmp_path: Path, results: Path) -> None:
    collect_from(tmp_path / "first", results, {DONE: 1.0, OTHER: 1.0}, made_by="first")
    collect_from(tmp_path / "second", results, {HALF: 2.0}, made_by="second")
    redraw = script("redraw")
    block = redraw.render("rainbow", redraw.load(results))
    assert "3 of 12 planned runs finished, 9 missing; 2 from 1.0 hours of runs on " in block
    assert re.search(r"commit first; 1 from 0\.5 hours of runs on [^;]*, commit second\. ", block)


# --- sharing -------------------------------------------------------------------------------------


def add_plan(study: str, results: Path) -> None:
    (results / study).mkdir()
    (results / study / "plan.toml").write_bytes((RESULTS / study / "plan.toml").read_bytes())


def test_a_study_takes_runs_with_its_settings_from_another(tmp_path: Path, results: Path) -> None:
    add_plan("minatar", results)
    collect_from(tmp_path / "first", results, {DONE: 1.0, OTHER: 1.0}, made_by="first")
    said = script("share").share("rainbow", "minatar", results)
    assert said == "minatar: 1 run of rainbow added, 59 missing"
    study = script("studies").load_study("minatar", results)
    assert [(run.agent, run.seed, run.finished) for run in study.runs] == [
        ("noisynet-dqn", 1, True)
    ]
    (source,) = study.provenance["collections"]
    assert (source["from_study"], source["commit"], source["runs"]) == ("rainbow", "first", 1)
    assert source["hours"] == {"training": 0.0, "evaluation": 0.0}  # counted in the other study
    assert DONE not in study.provenance["missing"]
    assert "the study rainbow on " in script("redraw").render(
        "minatar", script("redraw").load(results)
    )


def test_shared_runs_stay_shared_when_others_are_collected(tmp_path: Path, results: Path) -> None:
    add_plan("minatar", results)
    collect_from(tmp_path / "first", results, {DONE: 1.0}, made_by="first")
    script("share").share("rainbow", "minatar", results)
    other = "minatar/asterix/dqn/seed-0"
    write_runs(tmp_path / "second", "minatar", {other: [2.0] * 10})
    script("collect").collect(tmp_path / "second", "minatar", results, made_by="second")
    shared, own = script("studies").load_study("minatar", results).provenance["collections"]
    assert (shared["from_study"], shared["names"], shared["commit"]) == ("rainbow", [DONE], "first")
    assert "from_study" not in own
    assert own["names"] == [other]


def test_sharing_takes_nothing_with_other_settings(tmp_path: Path, results: Path) -> None:
    add_plan("minatar", results)
    plan = results / "minatar" / "plan.toml"
    plan.write_text(plan.read_text().replace("5_000", "6_000"))
    collect_from(tmp_path / "first", results, {DONE: 1.0}, made_by="first")
    with pytest.raises(script("collect").CollectError, match="that minatar lacks, with the sett"):
        script("share").share("rainbow", "minatar", results)
    assert not (results / "minatar" / "data.jsonl").exists()


# --- missing runs --------------------------------------------------------------------------------


def runs_of(commands: list[str]) -> list[str]:
    """The names of the runs that commands make."""
    found = []
    for command in commands:
        _, _, plan, *options = shlex.split(command)
        given: dict[str, Any] = {}
        for key, value in zip(options[::2], options[1::2], strict=True):
            given[key[2:]] = Path(value) if key == "--out" else value
        specs = build_plan(str(ROOT / plan), **given).specs
        found += [spec.name for spec in specs]
    return found


def list_missing(study: str, results: Path) -> tuple[str, list[str], list[str]]:
    """The first line, the names of the missing runs, and the rest."""
    first, *lines = script("missing").list_missing(study, Path("runs"), results).splitlines()
    names = [line.strip() for line in lines if line.startswith("  ")]
    return first, names, lines[len(names) :]


def test_a_study_without_data_lacks_all_of_its_plan(results: Path) -> None:
    first, names, commands = list_missing("rainbow", results)
    assert first == "rainbow: 12 of 12 runs are missing"
    assert len(names) == 12
    assert commands == ["noisynet sweep results/rainbow/plan.toml --out runs"]


def test_sweeps_make_the_missing_runs_and_no_others(tmp_path: Path, results: Path) -> None:
    names = {HALF: 1.0, DONE: 1.0, "minatar/breakout/rainbow/seed-2": 1.0}
    names |= {f"minatar/breakout/noisynet-c51/seed-{seed}": 1.0 for seed in range(3)}
    collect_from(tmp_path / "first", results, names)
    first, missing, commands = list_missing("rainbow", results)
    assert first == "rainbow: 6 of 12 runs are missing"
    assert not names.keys() & set(missing)
    assert sorted(runs_of(commands)) == sorted(missing)
    # "--seeds 2" would be two seeds.
    assert "results/rainbow/plan.toml --agents noisynet-dqn --seeds 2-2 --out runs" in commands[0]


def test_sweeps_of_missing_variants_say_what_else_they_make(results: Path) -> None:
    synthetic = script("synthetic_results")
    runs = synthetic.synthetic_runs("sigma0")
    (results / "sigma0").mkdir()
    (results / "sigma0" / "plan.toml").write_bytes((RESULTS / "sigma0/plan.toml").read_bytes())
    synthetic.write_study(results, "sigma0", runs[:-2])
    _, missing, (*commands, more) = list_missing("sigma0", results)
    assert missing == [f"deep_sea/10/noisynet-dqn+sigma0-1/seed-{seed}" for seed in (1, 2)]
    made = runs_of(commands)
    assert set(missing) < set(made)
    assert len(made) == 8
    assert more == "The commands make other variants, too: 6 runs that are not missing."


def test_nothing_is_missing_of_a_study_that_was_run(results: Path) -> None:
    synthetic = script("synthetic_results")
    synthetic.write_study(results, "rainbow", synthetic.synthetic_runs("rainbow"))
    assert list_missing("rainbow", results) == ("rainbow: 0 of 12 runs are missing", [], [])


def test_a_changed_plan_lacks_all_of_its_runs(tmp_path: Path, results: Path) -> None:
    collect_from(tmp_path / "first", results, {DONE: 1.0})
    plan = results / "rainbow" / "plan.toml"
    plan.write_text(plan.read_text().replace("seeds = 3", "seeds = 2"))
    first, _, _ = list_missing("rainbow", results)
    assert first == "rainbow: 8 of 8 runs are missing; the plan was changed after its data"


# --- numbers -------------------------------------------------------------------------------------


def test_verdicts_follow_from_intervals() -> None:
    verdicts = script("verdicts")
    low, high, wide = np.array([1.0, 2, 3]), np.array([4.0, 5, 6]), np.array([2.0, 4, 9])
    assert verdicts.compare(high, low) == "higher"
    assert verdicts.compare(low, high) == "lower"
    assert verdicts.compare(high, wide) == "overlap"
    assert verdicts.compare(high[:2], low) == "too few seeds"
    assert verdicts.compare_with(low, 0.5) == "higher"
    assert verdicts.compare_with(low, 2.5) == "overlap"
    assert verdicts.compare_with(low, 3.5) == "lower"


def test_a_sentence_says_where_nothing_was_shown() -> None:
    sentence = script("verdicts").sentence
    assert sentence("X", {"a": "higher", "b": "overlap", "c": "overlap"}) == (
        "X: higher in 1 of 3 games (a); nothing was shown in 2 of 3 games (b, c)."
    )
    assert (
        sentence("X", {"a": "overlap", "b": "overlap"})
        == "X: nothing was shown in any of the 2 games."
    )
    assert sentence("X", {"a": "lower"}, ("rises", "falls")) == "X: falls (a)."


@pytest.mark.parametrize(
    ("reached", "episodes"),
    [
        ("..XXX", 60.0),
        ("XXXXX", 20.0),
        ("X....", math.inf),  # an untrained network that prefers "right"
        ("X.XX.", math.inf),
        ("....X", math.inf),  # one evaluation may be luck
        ("X..XX", 80.0),
    ],
)
def test_deep_sea_is_solved_when_it_stays_solved(reached: str, episodes: float) -> None:
    run = next(
        run for run in script("synthetic_results").synthetic_runs("sigma0") if run.frames == 10_000
    )
    scores = np.where([one == "X" for one in reached], 0.99, -0.005)
    assert replace(run, scores={"off": scores}).solved_episodes == episodes


def test_layers_are_grouped_by_their_place_in_the_network() -> None:
    groups = script("studies").layer_groups
    assert groups(["head.q.0", "head.q.2"]) == {"hidden": ["head.q.0"], "last": ["head.q.2"]}
    assert groups(["head.q.0"]) == {"last": ["head.q.0"]}
    a3c = {"hidden": ["hidden.0"], "policy": ["policy"], "value": ["value"]}
    assert groups(["hidden.0", "policy", "value"]) == a3c
    streams = ["head.value.0", "head.value.2", "head.advantage.0", "head.advantage.2"]
    assert groups(streams) == {"hidden": streams[::2], "last": streams[1::2]}


# --- figures and tables of synthetic data --------------------------------------------------------


@pytest.mark.parametrize("study", PLANS)
def test_every_study_has_its_figures_and_tables(study: str, tmp_path: Path) -> None:
    found = load_synthetic(study, tmp_path)
    redraw = script("redraw")
    studies = {study: found}
    drawn = redraw.draw(studies, tmp_path)
    block = redraw.render("deep-sea" if study.startswith("deep-sea") else study, studies)
    assert set(re.findall(r"\(results/([\w-]+\.png)\)", block)) == set(drawn)
    for picture in drawn.values():
        assert len(picture) < script("result_figures").MAX_BYTES
        with Image.open(io.BytesIO(picture)) as image:
            assert image.info["Source"] == script("studies").digest(study, tmp_path)
    for contender in found.contenders:
        assert found.title(contender) in block
    assert "What it says" in block
    assert "CPU, 2 cores, torch 2.13.0, commit 0123456789ab, ba9876543210 (2 runs)" in block


def test_unfinished_runs_are_drawn_but_in_no_table(tmp_path: Path) -> None:
    found = load_synthetic("rainbow", tmp_path, finished=False)
    redraw = script("redraw")
    assert redraw.draw({"rainbow": found}, tmp_path).keys() == {"rainbow.png"}
    assert "| MinAtar Breakout |" not in redraw.render("rainbow", {"rainbow": found})
    with figure_style():
        (axes,) = script("result_figures").learning_curves(found).axes
    assert len(axes.lines) == len(found.runs)


def test_curves_show_the_interquartile_mean_and_its_interval(tmp_path: Path) -> None:
    found = load_synthetic("minatar", tmp_path)
    with figure_style():
        axes = script("result_figures").learning_curves(found).axes[0]
    assert axes.get_title() == "MinAtar Breakout, 3 seeds"
    runs = found.of(Contender("dqn"), "minatar/breakout")
    mean = np.mean([run.curve for run in runs], axis=0)  # of three seeds nothing is trimmed
    np.testing.assert_allclose(axes.lines[0].get_ydata(), mean)
    low, high = np.sort([run.curve for run in runs], axis=0)[[0, -1]]
    (path,) = axes.collections[0].get_paths()
    assert path.vertices[:, 1].min() >= low.min() - 1e-9
    assert path.vertices[:, 1].max() <= high.max() + 1e-9


def test_a_table_has_scores_noise_and_verdicts(tmp_path: Path) -> None:
    found = load_synthetic("minatar", tmp_path)
    text = script("result_tables").markdown(
        script("result_tables").score_table(found, ["minatar/breakout"])
    )
    runs = found.of(Contender("noisynet-dqn"), "minatar/breakout")
    score = np.mean([run.scores["on"].max() for run in runs])
    row = next(line for line in text.splitlines() if "| NoisyNet-DQN |" in line)
    assert f"| 3 | {score:.2f} " in row
    assert "| −0.10 \\[−0.10, −0.10\\] |" in row
    assert row.endswith("| nothing shown | higher |")  # the score overlaps, the curve does not


def test_a_table_has_the_last_training_games_and_evaluations_without_one(tmp_path: Path) -> None:
    found = load_synthetic("pong", tmp_path, incomplete={"on": [1, 3], "off": [2]})
    tables = script("result_tables")
    text = tables.markdown(tables.training_table(found))
    (run,) = found.of(Contender("noisynet-dqn"), "atari/pong")
    assert f"| NoisyNet-DQN | 800,000 | {run.training[-1]:.2f} |" in text
    assert "| 8 | 2 with noise on, 1 with noise off |" in text
    assert "| A3C | 8,000,000 |" in text
    with figure_style():
        axes = script("result_figures").training_and_evaluations(found).axes
    np.testing.assert_array_equal(axes[1].lines[-1].get_ydata(), run.training)


def test_variants_are_compared_with_their_agent_without_a_variant(tmp_path: Path) -> None:
    found = load_synthetic("presets", tmp_path)
    tables, figures = script("result_tables"), script("result_figures")
    pairs = [tuple(map(found.title, pair)) for pair in tables.pairs(found)]
    assert ("DQN, preset cartpole", "DQN, preset classic") in pairs
    assert ("NoisyNet-DQN, preset acrobot", "NoisyNet-DQN, preset classic") in pairs
    assert len(pairs) == 4
    text = tables.markdown(tables.seed_table(found))
    runs = found.of(Contender("dqn", "cartpole"), "gym/CartPole-v1")
    best, last = (
        ", ".join(f"{score:.1f}" for score in scores)
        for scores in ([run.curve.max() for run in runs], [run.curve[-1] for run in runs])
    )
    assert f"| CartPole-v1 | DQN, preset cartpole | {best} | {last} |" in text
    with figure_style():
        panels = figures.variants_by_agent(found).axes
    assert [axes.get_title() for axes in panels][:2] == [
        "DQN, CartPole-v1, 3 seeds",
        "NoisyNet-DQN, CartPole-v1, 3 seeds",
    ]
    assert all(len(axes.lines) == 2 for axes in panels)


def test_claims_are_answered_from_all_studies(tmp_path: Path) -> None:
    studies = {name: load_synthetic(name, tmp_path) for name in ("minatar", "minatar-a3c", "pong")}
    claims = script("claims")
    assert len(claims.faster(studies)) == len(claims.higher(studies)) == 4 + 3
    assert "NoisyNet-DQN, Σ̄ of the last layers: falls in all 5 games." in claims.sigma(studies)
    for layer, verb in (("policy", "rises"), ("value", "falls")):
        line = f"NoisyNet-A3C, Σ̄ of the {layer} layer: {verb} in all 5 games."
        assert line in claims.sigma(studies)
    assert claims.on_off(studies)[0] == "NoisyNet-DQN: lower with noise in all 5 games."
    assert "factorised against independent" in claims.factorised(studies)[0]
    assert "no verdict with fewer than 3 seeds (Pong)" in claims.factorised(studies)[-1]


def test_scores_with_noise_off_are_compared_too(tmp_path: Path) -> None:
    found = load_synthetic("minatar", tmp_path)
    claims, tables = script("claims"), script("result_tables")
    assert not any("score with noise off" in line for line in tables.score_sentences(found))
    worse = [
        replace(run, scores=run.scores | {"on": run.scores["off"] - 50})
        if "on" in run.scores
        else run
        for run in found.runs
    ]
    studies = {"minatar": replace(found, runs=tuple(worse))}
    line = "NoisyNet-DQN against DQN: lower in all 5 games."
    assert line in claims.higher(studies)
    assert line not in claims.higher_off(studies)
    assert claims.higher_off(studies) == claims.higher_off({"minatar": found})
    lines = tables.score_sentences(studies["minatar"])
    assert any("NoisyNet-DQN against DQN, score with noise off" in line for line in lines)


def test_every_group_of_layers_has_a_panel(tmp_path: Path) -> None:
    figures = script("result_figures")
    with figure_style():
        panels = figures.sigma_figure(load_synthetic("pong", tmp_path)).axes
    shown = [(axes.get_ylabel(), axes.get_visible()) for axes in panels]
    assert shown == [
        *(("hidden layers", True), ("", True), ("", True)),
        *(("policy layer", True), ("", True), ("last layers", True)),
        *(("value layer", True), ("", True), ("", False)),
    ]


def test_the_page_says_which_studies_were_not_run(tmp_path: Path) -> None:
    redraw = script("redraw")
    page = tmp_path / "docs" / "results.md"
    page.parent.mkdir()
    page.write_text(redraw.PAGE.read_text())
    load_synthetic("rainbow", tmp_path / "results")
    redraw.main(tmp_path / "results", page)
    text = page.read_text()
    assert (page.parent / "results" / "rainbow.png").exists()
    names = ["deep-sea", *(name for name in PLANS if not name.startswith("deep-sea"))]
    shown = {name: text.split(f"results: {name} -->")[1].split("<!-- end")[0] for name in names}
    assert [name for name in shown if redraw.NOT_RUN not in shown[name]] == ["rainbow"]
    (tmp_path / "results" / "rainbow" / "data.jsonl").unlink()
    redraw.main(tmp_path / "results", page)
    assert not (page.parent / "results" / "rainbow.png").exists()


# --- models --------------------------------------------------------------------------------------


class StubAgent:
    """What `publish_model.py` uses of an agent."""

    def evaluate(self, episodes: int, noise: bool) -> Any:
        mean = 5.0 + noise
        return type("Evaluation", (), {"mean": mean, "standard_deviation": 1.5})()

    def save(self, path: Path) -> None:
        path.write_bytes(b"weights")


def test_a_published_model_has_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = script("publish_model")
    monkeypatch.setattr(publish, "load_agent", lambda path: StubAgent())
    write_runs(tmp_path, "rainbow", {DONE: [1.0] * 10, HALF: [1.0]})
    (tmp_path / f"{DONE}.log").write_text(
        "--- today: python -m noisynet.run 1 train noisynet-dqn minatar/breakout --frames 200000 "
        "--set a=b --out /x --name y --device auto --no-tensorboard\nmore\n"
    )
    page = publish.publish(tmp_path / DONE, tmp_path / "models", made_by="0123")
    assert (tmp_path / "models" / "breakout.safetensors").exists()
    facts = publish.read_card(page)
    assert (facts["agent"], facts["frames"], facts["seed"]) == ("noisynet-dqn", "200000", "1")
    assert (facts["score_noise_on"], facts["score_noise_off"]) == ("6.0", "5.0")
    text = page.read_text()
    assert "    noisynet train noisynet-dqn minatar/breakout --frames 200000 --set a=b\n" in text
    assert "| off | 5.00 ± 1.50 |" in text
    with pytest.raises(
        publish.PublishError, match="expected a finished run, got one that is inter"
    ):
        publish.publish(tmp_path / HALF, tmp_path / "models")


CARDS = sorted(path for path in (ROOT / "models").glob("*.md") if path.name != "README.md")


@pytest.mark.skipif(not CARDS, reason="no models are published yet")
@pytest.mark.parametrize("page", CARDS, ids=lambda path: path.stem)
def test_a_published_model_meets_its_card(page: Path) -> None:
    publish = script("publish_model")
    facts = publish.read_card(page)
    agent = publish.load_agent(page.with_suffix(".safetensors"))
    episodes = 10
    played = agent.evaluate(episodes=episodes, noise=False)
    # Three standard errors: the environment's randomness alone.
    margin = 3 * float(facts["deviation_noise_off"]) / math.sqrt(episodes)
    assert played.mean == pytest.approx(float(facts["score_noise_off"]), abs=margin)
