"""Writes pictures as mp4 or gif."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from PIL import Image

from noisynet.extras import import_extra
from noisynet.runs.files import storage_errors, temporary_name

GIF_PICTURES: Final = 250
"""At most so many pictures in a gif: of a MinAtar game that is less than 2 MB."""

_GIF_RATE: Final = 10
_COLOURS: Final = 64
_BT709: Final = 1  # of primaries, transfer and matrix alike
_LIMITED_RANGE: Final = 1


def gif_stride(steps: int, rate: int) -> int:
    """Every how many steps a gif has a picture: at most 10 a second and `GIF_PICTURES` in all."""
    return max(-(-rate // _GIF_RATE), -(-steps // GIF_PICTURES))


@contextmanager
def atomic_file(output: Path) -> Iterator[Path]:
    """A temporary path that is renamed to `output` on success and deleted on failure."""
    with storage_errors("write", output):
        output.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_name(output)
        try:
            yield temporary
            temporary.replace(output)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def write_gif(
    path: Path,
    pictures: Iterator[Image.Image],
    durations: Sequence[float],
    samples: Sequence[Image.Image],
) -> None:
    """Write pictures with one palette and without dithering, so that little changes between them.

    Each is shown for its duration in seconds. `samples` have every colour of the video.
    """
    montage = Image.new("RGB", (max(one.width for one in samples), sum(s.height for s in samples)))
    top = 0
    for sample in samples:
        montage.paste(sample, (0, top))
        top += sample.height
    palette = montage.quantize(_COLOURS, dither=Image.Dither.NONE)
    frames = (one.quantize(palette=palette, dither=Image.Dither.NONE) for one in pictures)
    milliseconds = [10 * round(100 * seconds) for seconds in durations]  # as a gif counts
    next(frames).save(
        path, "GIF", save_all=True, append_images=frames, duration=milliseconds, loop=0
    )


def write_mp4(path: Path, pictures: Iterator[Image.Image], rate: int) -> None:
    """Write pictures in H.264 if PyAV has it; both sides must be even."""
    av = import_extra("av", "video")
    stream = None
    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        for number, picture in enumerate(pictures):
            if stream is None:
                stream = _stream(av, container, rate, picture.size)
            frame = av.VideoFrame.from_image(picture)
            frame = frame.reformat(format="yuv420p", dst_colorspace=_BT709)
            frame.pts, frame.time_base = number, Fraction(1, rate)
            container.mux(stream.encode(frame))
        if stream is not None:
            container.mux(stream.encode())


def _stream(av: Any, container: Any, rate: int, size: tuple[int, int]) -> Any:
    if "libx264" in av.codec.codecs_available:
        options = {"crf": "18", "preset": "veryfast"}
        stream = container.add_stream("libx264", rate=rate, options=options)
    else:
        stream = container.add_stream("mpeg4", rate=rate, options={"qscale": "3"})
    stream.width, stream.height = size
    stream.pix_fmt = "yuv420p"
    context = stream.codec_context
    context.color_primaries = context.color_trc = context.colorspace = _BT709
    context.color_range = _LIMITED_RANGE
    return stream
