from services.negotiator.daemon import Negotiator
from shared.daemon.main import run

run(Negotiator)
