"""The published scores and references."""

from __future__ import annotations

from noisynet.reports.published import atari_references, published_scores


def test_published_scores_are_of_57_games_and_six_agents() -> None:
    scores = published_scores()
    assert len(scores) == 6
    assert all(list(games) == list(atari_references("source")) for games in scores.values())
    assert len(atari_references("source")) == 57
    assert (scores["a3c"]["pong"].mean, scores["a3c"]["pong"].std) == (7, 19)
    assert scores["noisynet-dueling"]["road_runner"].std == 132_671
