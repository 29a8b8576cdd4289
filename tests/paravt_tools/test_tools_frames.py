"""Frames against the numbers in their pixels; sizes against the processor's rule."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

from data_prep.sampling import sampled_seconds
from paravt_tools import FrameBatch, VideoError, VideoInfo, probe_video, read_frames, resized_size
from paravt_tools import frames as frames_module

SMALL = {"min_pixels": 32 * 32, "max_pixels": 128 * 96}
CONSTANT = [Fraction(i, 10) for i in range(60)]
CHANGING = [Fraction(i, 10) if i < 30 else 3 + Fraction(i - 30) * 2 / 5 for i in range(60)]


def shifted(seconds):
    return [time + Fraction(seconds) for time in CONSTANT]


# Name, first number, times of the frames, end of the last. FFmpeg itself adds 1.4 s to transport streams
# (-muxdelay, -muxpreload) and one frame to MPEG-4 with B-frames in AVI.
EXPECTED = [
    ("plain", 0, CONSTANT, 6.0),
    ("matroska", 0, CONSTANT, 6.0),
    ("vp9", 0, CONSTANT, 6.0),
    ("hevc", 0, CONSTANT, 6.0),
    ("longer sound", 0, CONSTANT, 6.0),
    ("late", 0, shifted(5), 11.0),
    ("late matroska", 0, shifted(5), 11.0),
    ("late transport stream", 0, shifted("6.4"), 12.4),
    ("avi", 0, shifted("0.1"), 6.1),
    ("changing rate", 0, CHANGING, 14.7),
    ("changing rate mp4", 0, CHANGING, 15.0),
    ("cut by an edit list", 24, CONSTANT[:36], 3.6),
    ("shown turned 90", 0, CONSTANT, 6.0),
    ("shown turned 180", 0, CONSTANT, 6.0),
    ("shown turned 270", 0, CONSTANT, 6.0),
]


def upright_again(batch, name):
    """The images as they were before the display was told to turn them."""
    degrees = int(name.split()[-1]) if name.startswith("shown turned") else 0
    return np.rot90(batch.images, -degrees // 90, axes=(1, 2))


@pytest.mark.parametrize(("name", "first", "times", "end"), EXPECTED, ids=[line[0] for line in EXPECTED])
class TestEveryKindOfFile:
    def test_probe(self, videos, name, first, times, end):
        info = probe_video(videos[name])
        sideways = name.endswith(("90", "270"))
        assert info.num_frames == len(times)
        assert info.start_seconds == pytest.approx(float(times[0]), abs=1e-6)
        assert info.duration_seconds == pytest.approx(end, abs=1e-6)
        assert info.fps == pytest.approx(len(times) / (end - float(times[0])))
        assert (info.width, info.height) == ((96, 128) if sideways else (128, 96))
        assert info.codec == {"avi": "mpeg4", "vp9": "vp9", "hevc": "hevc"}.get(name, "h264")
        # -display_rotation counts counter-clockwise.
        assert info.rotation == {"90": 270, "180": 180, "270": 90}.get(name.split()[-1], 0)

    def test_every_frame_is_the_right_one(self, videos, name, first, times, end, frame_numbers):
        batch = read_frames(videos[name], 2000, **SMALL)
        assert batch.images.dtype == np.uint8 and batch.timestamps_seconds.dtype == np.float64
        assert frame_numbers(upright_again(batch, name)) == list(range(first, first + len(times)))
        np.testing.assert_allclose(batch.timestamps_seconds, [float(time) for time in times], atol=1e-6)
        assert batch.images.shape[1:3] == (batch.info.height, batch.info.width)

    @pytest.mark.parametrize(("low", "high"), [(0.6, 0.9), (0.31, 0.33), (0.0, 0.2), (0.95, 1.0)])
    def test_a_window_has_the_frames_on_show(self, videos, name, first, times, end, low, high, frame_numbers):
        start = float(times[0]) + low * (end - float(times[0]))
        stop = float(times[0]) + high * (end - float(times[0]))
        batch = read_frames(videos[name], 7, start, stop, **SMALL)
        middles = [start + (i + 0.5) * (stop - start) / 7 for i in range(7)]
        shown = sorted({max(i for i, time in enumerate(times) if time <= middle + 1e-6) for middle in middles})
        assert frame_numbers(upright_again(batch, name)) == [first + i for i in shown]
        np.testing.assert_allclose(batch.timestamps_seconds, [float(times[i]) for i in shown], atol=1e-6)


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts"])
@pytest.mark.parametrize("is_open", [0, 1])
def test_keyframes_at_odd_places_and_open_groups(make_video, suffix, is_open, frame_numbers, h264):
    options = [*h264[:-2], "-g", "17", "-x264-params", f"open-gop={is_open}"]
    path = make_video(f"open{is_open}.{suffix}", *options, num_frames=120, fps=25)
    assert frame_numbers(read_frames(path, 120, **SMALL).images) == list(range(120))
    for number in range(0, 118):
        start = probe_video(path).start_seconds + number / 25
        batch = read_frames(path, 2, start, start + 2 / 25, **SMALL)
        assert frame_numbers(batch.images) == [number, number + 1]
        np.testing.assert_allclose(batch.timestamps_seconds, [start, start + 1 / 25])


@pytest.mark.parametrize("width", [32, 96])
def test_narrow_frames(plain, width, frame_numbers):
    limits = {"min_pixels": 1024, "max_pixels": 1024 if width == 32 else 96 * 96}
    images = read_frames(plain, 3, **limits).images
    assert images.shape[2:] == (width, 3) and frame_numbers(images) == [10, 30, 50]


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("rate", ["30", "30000/1001"])
def test_times_agree_with_data_prep(make_video, suffix, rate, h264):
    path = make_video(f"rate{rate.replace('/', '-')}.{suffix}", *h264, num_frames=50, fps=rate)
    info = probe_video(path)
    for num_frames in (1, 4, 7, 25, 50, 64, 512):
        for start, end in ((0.0, None), (0.5, 1.2), (0.99, 40.0)):
            batch = read_frames(path, num_frames, start, end, **SMALL)
            expected = sampled_seconds(info.num_frames, info.duration_seconds, num_frames, start, end)
            np.testing.assert_allclose(batch.timestamps_seconds, expected, atol=1.1e-3)


@pytest.mark.parametrize(
    ("start", "end", "number"),
    [(1.03, 1.04, 10), (0.0, 0.001, 0), (5.99, 6.5, 59), (6.0, 7.0, 59), (80.0, 90.0, 59), (-3.0, -2.0, 0)],
)
def test_a_window_without_a_frame_of_its_own_gives_the_nearest(plain, start, end, number, frame_numbers):
    assert frame_numbers(read_frames(plain, 4, start, end, **SMALL).images) == [number]


def test_a_window_before_a_late_start_gives_the_first_frame(videos, frame_numbers):
    assert frame_numbers(read_frames(videos["late"], 4, 1.0, 3.0, **SMALL).images) == [0]


@given(st.integers(1, 40), st.floats(0, 5.9), st.floats(0.01, 8))
def test_frames_are_sorted_few_and_near_the_window(plain, num_frames, start, length):
    scan = frames_module.scan_video(plain)
    numbers = frames_module._frame_numbers(scan, num_frames, start, start + length)
    times = scan.times_seconds[numbers]
    assert 1 <= len(times) <= num_frames and (np.diff(times) > 0).all()
    assert times[0] > start - 0.1 - 1e-6 and times[-1] < start + length


@pytest.mark.parametrize(
    ("num_frames", "start", "end"),
    [
        *((0, 0.0, None), (-1, 0.0, None), (4, 3.0, 3.0), (4, 3.0, 2.0)),
        *((4, math.nan, 2.0), (4, 0.0, math.nan), (4, math.inf, None)),
    ],
)
def test_bad_arguments_are_the_callers_fault(plain, num_frames, start, end):
    with pytest.raises(ValueError, match=r"num_frames|window"):
        read_frames(plain, num_frames, start, end, **SMALL)


class TestUnreadable:
    @pytest.fixture
    def refuse(self):
        def check(path, *words):
            for read in (probe_video, lambda path: read_frames(path, 4, **SMALL)):
                with pytest.raises(VideoError) as caught:
                    read(path)
                assert caught.value.path == str(path) and caught.value.reason
                assert str(caught.value).count("\n") == 0
                assert all(word in caught.value.reason.lower() for word in words)

        return check

    def test_missing(self, refuse, tmp_path):
        refuse(tmp_path / "none.mp4", "no such file")

    def test_directory(self, refuse, tmp_path):
        refuse(tmp_path, "not a regular file")

    def test_empty(self, refuse, tmp_path):
        (tmp_path / "empty.mp4").touch()
        refuse(tmp_path / "empty.mp4", "empty")

    @pytest.mark.parametrize("name", ["text.mp4", "text.txt"])
    def test_text(self, refuse, tmp_path, name):
        (tmp_path / name).write_text("This is not a video.\n" * 300)
        refuse(tmp_path / name)

    def test_a_path_that_cannot_be(self, refuse):
        refuse("a\0b.mp4")

    def test_audio_only(self, refuse, audio_only):
        refuse(audio_only, "no video stream")

    def test_an_index_cut_off(self, refuse, plain, tmp_path):
        path = tmp_path / "cut.mp4"
        path.write_bytes(plain.read_bytes()[: plain.stat().st_size // 2])
        refuse(path)

    @pytest.mark.parametrize("name", ["first.mp4", "plain.mkv", "plain.webm"])
    def test_frames_cut_off(self, refuse, make_video, videos, tmp_path, name, h264):
        whole = make_video("first.mp4", *h264, "-movflags", "+faststart") if name == "first.mp4" else None
        whole = whole or videos["vp9" if name == "plain.webm" else "matroska"]
        path = tmp_path / name
        path.write_bytes(whole.read_bytes()[: whole.stat().st_size * 6 // 10])
        refuse(path, "cut off")

    def test_damaged_frames(self, plain, tmp_path):
        path = tmp_path / "damaged.mp4"
        data = bytearray(plain.read_bytes())
        begin = data.index(b"mdat") + 4
        end = data.index(b"moov") - 4
        data[begin + (end - begin) // 3 : end] = b"\xff" * (end - begin - (end - begin) // 3)
        path.write_bytes(data)
        assert probe_video(path).num_frames == 60
        with pytest.raises(VideoError, match="Invalid data"):
            read_frames(path, 60, **SMALL)

    def test_an_unreadable_first_frame(self, refuse, plain, tmp_path):
        path = tmp_path / "noise.mp4"
        data = bytearray(plain.read_bytes())
        begin, end = data.index(b"mdat") + 4, data.index(b"moov") - 4
        data[begin:end] = b"\xff" * (end - begin)
        path.write_bytes(data)
        refuse(path)


def test_what_decord_gives_up_on_is_left_to_pyav(plain, monkeypatch, frame_numbers):
    import decord

    def fail(*arguments, **options):
        raise decord.DECORDError("Error sending packet")

    monkeypatch.setattr(decord, "VideoReader", fail)
    assert frame_numbers(read_frames(plain, 3, **SMALL).images) == [10, 30, 50]


@pytest.mark.parametrize("name", ["plain", "late matroska", "changing rate", "vp9", "shown turned 90"])
@pytest.mark.parametrize("width", [64, 128, 160, 288])
def test_decord_and_pyav_give_the_same_pixels(videos, name, width):
    path = str(videos[name])
    scan = frames_module.scan_video(path)
    numbers = np.array([0, 7, 31, 59])
    by_decord = frames_module._decord_images(path, scan, numbers, 64, width)
    by_pyav = frames_module._av_images(path, scan, numbers, 64, width)
    assert by_decord is not None
    assert np.abs(by_decord.astype(int) - by_pyav).mean() < 2


def test_a_file_that_changed_is_looked_at_again(make_video, tmp_path, h264):
    path = tmp_path / "changing.mp4"
    for num_frames in (12, 20):
        source = make_video(f"{num_frames}.mp4", *h264, num_frames=num_frames)
        path.write_bytes(source.read_bytes())
        assert probe_video(path).num_frames == num_frames


def test_paths_may_be_text(plain):
    assert probe_video(str(plain)) == probe_video(plain)


def test_batches_pickle(plain):
    batch = read_frames(plain, 2, **SMALL)
    copy = pickle.loads(pickle.dumps(batch))
    assert isinstance(copy, FrameBatch) and isinstance(copy.info, VideoInfo) and copy.info == batch.info
    np.testing.assert_array_equal(copy.images, batch.images)


def test_frames_have_the_models_size(plain, frame_numbers):
    limits = {"min_pixels": 200 * 1024, "max_pixels": 260 * 1024}
    batch = read_frames(plain, 3, **limits)
    assert batch.images.shape[1:3] == resized_size(96, 128, **limits) != (96, 128)
    assert frame_numbers(batch.images) == [10, 30, 50]


sides = st.integers(1, 8000)


class TestSizes:
    @pytest.mark.parametrize(
        ("height", "width", "expected"),
        [(720, 1280, (256, 480)), (1280, 720, (480, 256)), (96, 128, (96, 128)), (16, 16, (64, 64))],
    )
    def test_by_hand(self, height, width, expected):
        assert resized_size(height, width, 4 * 1024, 128 * 1024) == expected

    @given(sides, sides, st.integers(1, 300), st.integers(4, 8))
    def test_the_processor_leaves_it_alone(self, height, width, least, times):
        limits = (least * 1024, least * times * 1024)
        size = resized_size(height, width, *limits)
        assert limits[0] <= size[0] * size[1] <= limits[1]
        assert smart_resize(*size, 32, *limits) == size

    @given(st.integers(32, 4000), st.integers(32, 4000))
    def test_usual_shapes_follow_the_processor(self, height, width):
        limits = (64 * 1024, 768 * 1024)
        assume(max(height, width) / min(height, width) < 10)
        assert resized_size(height, width, *limits) == smart_resize(height, width, 32, *limits)

    @pytest.mark.parametrize(("height", "width"), [(1, 100_000), (100_000, 1), (1, 1), (8000, 30)])
    def test_extreme_shapes(self, height, width):
        size = resized_size(height, width, min_pixels=4 * 1024, max_pixels=64 * 1024)
        assert smart_resize(*size, 32, 4 * 1024, 64 * 1024) == size
        assert (size[0] > size[1]) == (height > width)

    def test_no_size_between_the_limits(self):
        # 97 blocks of 32 x 32 are 99328 pixels, 98 are 100352: the smaller limit gives way, the shape does not.
        assert resized_size(100, 100, 100_000, 100_001) == (288, 288)

    @pytest.mark.parametrize("bad", [(0, 5, 1, 5000), (5, -1, 1, 5000), (5, 5, 1, 1023), (5, 5, 6000, 5000)])
    def test_bad_arguments(self, bad):
        with pytest.raises(ValueError, match="at least"):
            resized_size(*bad)
