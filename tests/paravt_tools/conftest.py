"""Test videos whose pixels hold the number of each frame. Made once, by the FFmpeg of imageio-ffmpeg."""

import subprocess

import imageio_ffmpeg
import numpy as np
import pytest

HEIGHT, WIDTH, NUM_BITS = 96, 128, 8
H264 = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-preset", "ultrafast", "-bf", "2", "-g", "250"]
# 30 frames of 0.1 s, then 30 of 0.4 s. A tick of the raw input is 0.1 s.
CHANGING_RATE = ["-vf", "setpts='if(lt(N,30),N,4*N-90)'", "-fps_mode", "vfr"]


def barcode(num_frames):
    """uint8 [num_frames, HEIGHT, WIDTH, 3]: bit b of the number is the b-th of 8 columns; the lower half is dim."""
    images = np.zeros((num_frames, HEIGHT, WIDTH, 3), np.uint8)
    for number in range(num_frames):
        for bit in range(NUM_BITS):
            if number >> bit & 1:
                images[number, :, bit * WIDTH // NUM_BITS : (bit + 1) * WIDTH // NUM_BITS] = 255
    images[:, HEIGHT // 2 :] //= 2
    return images


def ffmpeg(*arguments, data=None):
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *map(str, arguments)]
    subprocess.run(command, input=data, check=True, timeout=60)


@pytest.fixture(scope="session")
def frame_numbers():
    """Gives the numbers that upright frames of any size hold."""

    def numbers(images):
        height, width = images.shape[1:3]
        middles = [(2 * bit + 1) * width // (2 * NUM_BITS) for bit in range(NUM_BITS)]
        bits = images[:, height // 4, middles].mean(-1) > 128
        return (bits << np.arange(NUM_BITS)).sum(-1).tolist()

    return numbers


@pytest.fixture(scope="session")
def h264():
    """Options of an encode with B-frames and one keyframe."""
    return list(H264)


@pytest.fixture(scope="session")
def make_video(tmp_path_factory):
    """``make_video(name, *output options)``: path of 60 numbered frames at 10 a second, or fewer."""
    folder = tmp_path_factory.mktemp("numbered")

    def make(name, *options, num_frames=60, fps=10):
        path = folder / name
        if not path.exists():
            raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{WIDTH}x{HEIGHT}", "-r", fps, "-i", "-"]
            ffmpeg(*raw, *options, path, data=barcode(num_frames).tobytes())
        return path

    return make


@pytest.fixture(scope="session")
def plain(make_video):
    """60 frames at 10 a second from time 0, with B-frames and one keyframe."""
    return make_video("plain.mp4", *H264)


@pytest.fixture(scope="session")
def audio_only(tmp_path_factory):
    path = tmp_path_factory.mktemp("audio") / "audio.mp4"
    ffmpeg("-f", "lavfi", "-i", "sine=duration=1", path)
    return path


@pytest.fixture(scope="session")
def videos(make_video, plain, tmp_path_factory):
    """Name -> path of all that can be read."""
    folder = tmp_path_factory.mktemp("copied")
    rotated = {}
    for degrees in (90, 180, 270):
        rotated[f"shown turned {degrees}"] = folder / f"{degrees}.mp4"
        ffmpeg("-display_rotation", degrees, "-i", plain, "-c", "copy", folder / f"{degrees}.mp4")
    ffmpeg("-ss", "2.35", "-i", plain, "-c", "copy", folder / "cut.mp4")
    ffmpeg("-i", plain, "-f", "lavfi", "-i", "sine=duration=8", "-c:v", "copy", folder / "sound.mp4")
    late = [*H264, "-output_ts_offset", "5"]
    return {
        "plain": plain,
        "matroska": make_video("plain.mkv", *H264),
        "changing rate": make_video("changing.mkv", *CHANGING_RATE, *H264),
        "changing rate mp4": make_video("changing.mp4", *CHANGING_RATE, *H264),
        "late": make_video("late.mp4", *late),
        "late matroska": make_video("late.mkv", *late),
        "late transport stream": make_video("late.ts", *late),
        "avi": make_video("plain.avi", "-c:v", "mpeg4", "-bf", "2", "-q:v", "2"),
        "hevc": make_video(
            "plain265.mp4", "-c:v", "libx265", "-x265-params", "log-level=none:keyint=20", "-pix_fmt", "yuv420p"
        ),
        "vp9": make_video("plain.webm", "-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8"),
        "cut by an edit list": folder / "cut.mp4",
        "longer sound": folder / "sound.mp4",
        **rotated,
    }
