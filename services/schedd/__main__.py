from services.schedd.daemon import Schedd
from shared.daemon.main import run

run(Schedd)
