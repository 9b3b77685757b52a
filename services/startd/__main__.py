from services.startd.daemon import Startd
from shared.daemon.main import run

run(Startd)
