"""Tests of containers are skipped, and say why, where no engine can run or no image be had."""

from collections.abc import Iterator

import pytest

from tests.docker.engine import Images, NoEngine, build_images, running_engine


@pytest.fixture(scope="session")
def images() -> Iterator[Images]:
    try:
        with running_engine():
            yield build_images()
    except NoEngine as reason:
        pytest.skip(str(reason))
