from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from noisynet.integrations.saved import load_saved


def test_an_object_of_the_expected_class_is_loaded(tmp_path: Path) -> None:
    saved = nn.Linear(3, 2)
    torch.save(saved, tmp_path / "layer.pt")
    loaded = load_saved(tmp_path / "layer.pt", (nn.Linear, nn.ReLU), "a layer", "layer")
    assert torch.equal(loaded.weight, saved.weight)


def test_another_class_raises_with_the_line_that_saves_one(tmp_path: Path) -> None:
    path = tmp_path / "layer.pt"
    torch.save(nn.ReLU(), path)
    message = r"expected a layer, saved whole, in .*layer\.pt, got a ReLU; .*torch\.save\(net, path"
    with pytest.raises(ValueError, match=message):
        load_saved(path, (nn.Linear,), "a layer", "net")
    torch.save(nn.ReLU().state_dict(), path)
    with pytest.raises(ValueError, match=r"got a OrderedDict \(a state_dict\?\)"):
        load_saved(path, (nn.Linear,), "a layer", "net")


@pytest.mark.parametrize("content", [b"", b"no pickle"])
def test_an_unreadable_file_raises(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "layer.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"got a file that cannot be read: .*; save it with"):
        load_saved(path, (nn.Linear,), "a layer", "net")
