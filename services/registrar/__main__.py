from services.registrar.daemon import Registrar
from shared.daemon.main import run

run(Registrar)
