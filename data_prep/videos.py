"""What is known of a video: from the annotation, from the file, or both."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from pathlib import Path, PurePosixPath

from data_prep.errors import Rejection

PROBE_MODES = ("auto", "always", "never")


@dataclass(frozen=True)
class VideoFacts:
    """Size and length of a video, upright; none for what is not known."""

    duration_seconds: float | None = None
    width: int | None = None
    height: int | None = None
    num_frames: int | None = None

    @property
    def complete(self) -> bool:
        return all(getattr(self, field.name) is not None for field in fields(self))


class VideoProber:
    """Completes the facts of an annotation from its file, which is opened once for all its questions.

    Args:
        video_root: folder that the annotations' paths are relative to.
        mode: ``auto`` opens a file only when a fact is missing, and otherwise sees that it is there;
            ``always`` opens every file and trusts it above the annotation; ``never`` touches no file.
    """

    def __init__(self, video_root: Path, mode: str):
        if mode not in PROBE_MODES:
            raise ValueError(f"mode is {mode!r}; it must be one of {PROBE_MODES}")
        self._video_root = video_root
        self._mode = mode
        self._probed: dict[str, VideoFacts | Rejection] = {}
        self._present: dict[str, bool] = {}
        self.num_probed = 0

    def relative_path(self, video: str) -> str:
        """The path under the video root, with ``/``.

        Raises:
            Rejection: the path leads out of the root.
        """
        path = os.path.normpath(os.path.join(self._video_root, video))
        relative = os.path.relpath(path, self._video_root)
        if relative == os.pardir or relative.startswith(os.pardir + os.sep) or os.path.isabs(relative):
            raise Rejection("video_outside_root", f"{video} is not under the video root {self._video_root}")
        return PurePosixPath(Path(relative)).as_posix()

    def complete(self, video: str, annotated: VideoFacts) -> VideoFacts:
        """The facts of a video, given its relative path and what the annotation says.

        Raises:
            Rejection: the file is missing or cannot be read.
        """
        if self._mode == "never":
            return annotated
        if self._mode == "auto" and annotated.complete:
            if video not in self._present:
                self._present[video] = (self._video_root / video).is_file()
            if not self._present[video]:
                raise self._missing(video)
            return annotated
        if video not in self._probed:
            self._probed[video] = self._probe(video)
        probed = self._probed[video]
        if isinstance(probed, Rejection):
            raise probed
        if self._mode == "always":
            return probed
        known = {field.name: getattr(annotated, field.name) for field in fields(annotated)}
        return replace(probed, **{name: value for name, value in known.items() if value is not None})

    def _missing(self, video: str) -> Rejection:
        return Rejection("missing_video", f"no file {self._video_root / video}")

    def _probe(self, video: str) -> VideoFacts | Rejection:
        from paravt_tools import VideoError, probe_video

        path = self._video_root / video
        if not path.exists():
            return self._missing(video)
        self.num_probed += 1
        try:
            info = probe_video(path)
        except VideoError as error:
            return Rejection("unreadable_video", str(error))
        return VideoFacts(info.duration_seconds, info.width, info.height, info.num_frames)
