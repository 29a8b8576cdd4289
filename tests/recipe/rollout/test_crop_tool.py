"""``crop_video`` behind verl's tool interface."""

import asyncio
import json
from pathlib import Path

import pytest
from verl.tools.tool_registry import initialize_tools_from_config

from paravt_tools import CROP_VIDEO_SCHEMA, read_frames
from recipe.paravt.rollout import crop_tool
from recipe.paravt.rollout.crop_tool import DEFAULTS, CropVideoTool

YAML = Path(crop_tool.__file__).parents[1] / "config" / "crop_video_tool.yaml"


@pytest.fixture(scope="module")
def tool():
    (made,) = initialize_tools_from_config(str(YAML))
    return made


@pytest.fixture(scope="module")
def video(shapes):
    line = json.loads((shapes / "annotations.jsonl").read_text().splitlines()[0])
    return str(shapes / line["video"])


def call(tool, video, parameters):
    async def whole():
        instance, _ = await tool.create(create_kwargs={"video": video})
        try:
            return await tool.execute(instance, parameters)
        finally:
            await tool.release(instance)

    return asyncio.run(whole())


def test_verl_builds_it_from_the_yaml_with_the_one_schema(tool):
    assert isinstance(tool, CropVideoTool) and tool.name == "crop_video"
    schema = tool.get_openai_tool_schema().model_dump(exclude_unset=True)
    assert schema == CROP_VIDEO_SCHEMA


def test_frames_come_back_as_images(tool, video):
    response, reward, metrics = call(tool, video, {"start_time": 2, "end_time": 7})
    expected = read_frames(video, 5, 2.0, 7.0, min_pixels=784, max_pixels=50_176)
    assert len(response.image) == 5 and metrics == {"executed": 1} and reward == 0.0
    assert response.image[0].tobytes() == expected.images[0].tobytes()
    assert f"{expected.timestamps_seconds[0]:.1f}" in response.text


def test_long_windows_keep_to_the_limit_of_frames(tool, video):
    response, *_ = call(tool, video, {"start_time": 0, "end_time": 1000})
    assert len(response.image) == DEFAULTS["max_frames"]


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"start_time": 9, "end_time": 3}, "after start_time"),
        ({}, "start_time"),
        ({"start_time": 999, "end_time": 1000}, "999"),
    ],
)
def test_a_bad_window_is_a_text_for_the_model(tool, video, parameters, says):
    response, _, metrics = call(tool, video, parameters)
    assert response.text.startswith("Error: ") and says in response.text
    assert not response.image and metrics == {"executed": 0}


def test_a_bad_video_is_a_text_and_a_missing_one_an_error(tool):
    response, *_ = call(tool, "/nowhere.mp4", {"start_time": 1, "end_time": 3})
    assert response.text.startswith("Error: ")
    with pytest.raises(ValueError, match=r"create_kwargs\.video"):
        call(tool, None, {"start_time": 1, "end_time": 3})


def test_an_unknown_setting_is_named():
    with pytest.raises(ValueError, match="'frames'"):
        CropVideoTool({"type": "native", "frames": 3})
