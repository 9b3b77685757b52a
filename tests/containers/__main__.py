"""Makes everything that the container suites need, ahead of them: python -m tests.containers [docker] [apptainer]"""

import sys

from tests.containers.apptainer import Apptainer
from tests.containers.engine import Engine
from tests.containers.images import IMAGES
from tests.servers import ServerError


def main(wanted: list[str]) -> int:
    try:
        if not wanted or "apptainer" in wanted:
            Apptainer.ensure()
        if not wanted or "docker" in wanted:
            with Engine.join() as engine:
                for name in IMAGES:
                    engine.image(name)
                engine.docker("compose", "version")
    except (ServerError, RuntimeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
