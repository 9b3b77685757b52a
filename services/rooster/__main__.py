from services.rooster.daemon import Rooster
from shared.daemon.main import run

run(Rooster)
