"""Looks at a video as the tool does: ``python -m paravt_tools VIDEO``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from paravt_tools.errors import ToolArgumentError, VideoError
from paravt_tools.frames import read_frames
from paravt_tools.probe import probe_video
from paravt_tools.sheet import contact_sheet
from paravt_tools.windows import CropWindow

_EXAMPLES = """\
examples:
  python -m paravt_tools talk.mp4 --start 10 --end 20 -o sheet.png    what a crop of seconds 10 to 20 shows
  python -m paravt_tools talk.mp4 --start 1:05 --end 1m30s -o sheet.png --num-frames 4
  python -m paravt_tools talk.mp4 --probe                             what is known of the file
"""

_MIN_PIXELS = 32 * 32
_MAX_PIXELS = 256 * 256
"""Limits of a frame of the sheet. Chosen here: sixteen such frames fit a screen."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit status: 0, or 2 for what the user can mend."""
    options = _parser().parse_args(arguments)
    try:
        if options.probe:
            _print_probe(options.video)
        else:
            _draw_sheet(options)
    except (ToolArgumentError, VideoError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m paravt_tools",
        description="Draws the frames of part of a video as a contact sheet, or prints what is known of it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("video", metavar="VIDEO", help="the video file")
    parser.add_argument(
        "--start", metavar="TIME", help="start of the part: 12.5, 1:05, 1m5s (default: the first frame)"
    )
    parser.add_argument("--end", metavar="TIME", help="its end, which is not in it (default: the video's end)")
    parser.add_argument("--num-frames", type=int, default=16, metavar="N", help="frames at most (default: 16)")
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("-o", "--output", type=Path, metavar="FILE", help="image to write; its suffix is its format")
    wanted.add_argument("--probe", action="store_true", help="print what is known of the file, draw nothing")
    return parser


def _print_probe(video: str) -> None:
    info = probe_video(video)
    width = max(len(field.name) for field in fields(info))
    for field in fields(info):
        value = getattr(info, field.name)
        print(f"{field.name:{width}}  {f'{value:.3f}' if isinstance(value, float) else value}")


def _draw_sheet(options: argparse.Namespace) -> None:
    info = probe_video(options.video)
    arguments = {
        "start_time": max(info.start_seconds, 0.0) if options.start is None else options.start,
        "end_time": info.duration_seconds if options.end is None else options.end,
    }
    window = CropWindow.from_arguments(arguments, info.duration_seconds)
    batch = read_frames(
        options.video,
        options.num_frames,
        window.start_seconds,
        window.end_seconds,
        min_pixels=_MIN_PIXELS,
        max_pixels=_MAX_PIXELS,
    )
    contact_sheet(batch).save(options.output)
    times = batch.timestamps_seconds
    print(f"{options.output}: {len(times)} frames from {times[0]:.2f} to {times[-1]:.2f} seconds")


if __name__ == "__main__":
    sys.exit(main())
