"""Packaging of ParaVT on veRL. Tool settings are in pyproject.toml; exact pins are in requirements/."""

from pathlib import Path

from setuptools import find_namespace_packages, setup

TOOLS = ["numpy>=2.0", "decord2>=3.0", "av>=14.0", "pillow>=10.0"]
DATA = [*TOOLS, "pandas>=2.2", "pyarrow>=19.0", "matplotlib>=3.8", "ijson>=3.2", "transformers>=5.5.3,<5.11"]
TRAIN = [
    "verl[verl-core]==0.9.1",
    "TransferQueue>=0.1.10",
    "tensordict>=0.8.0,!=0.9.0,<=0.10.0",
    "transformers==5.9.0",
    "psutil>=5.9",
    *DATA,
]

setup(
    name="paravt-verl",
    version="0.1.0",
    description="Parallel, tool-using video reinforcement learning (ParaVT, PARA-GRPO) as a fork-free veRL recipe",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10,<3.13",
    # `recipe` has no __init__.py on purpose: verl-recipe installs folders under the same top-level name.
    packages=find_namespace_packages(
        include=["recipe.*", "paravt_tools", "paravt_tools.*", "reward_fns", "reward_fns.*", "data_prep", "data_prep.*"]
    ),
    package_data={"recipe.paravt": ["config/**/*.yaml"], "recipe.paravt.rollout": ["*.jinja"]},
    install_requires=[],
    extras_require={
        "tools": TOOLS,
        "data": DATA,
        "train": TRAIN,
        # verl's own pins for GPUs. flash-attn is not among them: its build needs torch to be there first.
        "gpu": [*TRAIN, "verl[vllm]==0.9.1"],
        "judge": ["openai>=2.0"],
        "test": [
            "pytest>=8.0",
            "pytest-asyncio>=1.0",
            "pytest-timeout>=2.3",
            "hypothesis>=6.100",
            "imageio-ffmpeg>=0.5",
            "ruff>=0.8",
            "mypy>=1.13",
        ],
    },
    entry_points={
        "verl.plugins": ["paravt = recipe.paravt.plugin"],
        "vllm.general_plugins": ["paravt = recipe.paravt.lifecycle.vllm_plugin:register"],
    },
    classifiers=[
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
    ],
)
