"""Makes everything that the container suites need, ahead of them: python -m tests.containers"""

import sys

from tests.containers.engine import Engine
from tests.containers.images import IMAGES
from tests.servers import ServerError


def main() -> int:
    try:
        with Engine.join() as engine:
            for name in IMAGES:
                engine.image(name)
            engine.docker("compose", "version")
    except (ServerError, RuntimeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
