"""Writes the tiny Qwen3-VL: ``python -m recipe.paravt.tiny --output DIR [--seed S]``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from recipe.paravt.tiny.model import TinySizes, write_checkpoint


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; every size is an option with its default."""
    parser = argparse.ArgumentParser(prog="python -m recipe.paravt.tiny", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder to write, made where missing")
    parser.add_argument("--seed", type=int, default=0, help="of the random weights (default: %(default)s)")
    for size in fields(TinySizes):
        option = f"--{size.name.replace('_', '-')}"
        parser.add_argument(option, type=type(size.default), default=size.default, help="default: %(default)s")
    given = vars(parser.parse_args(arguments))
    output, seed = given.pop("output"), given.pop("seed")
    try:
        sizes = TinySizes(**given)
    except ValueError as error:
        parser.error(str(error))
    num_parameters = write_checkpoint(output, sizes, seed)
    print(f"{output}: Qwen3-VL with {num_parameters / 1e6:.2f} million random parameters, seed {seed}")


if __name__ == "__main__":
    main()
