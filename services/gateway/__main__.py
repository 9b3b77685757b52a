from services.gateway.daemon import Gateway
from shared.daemon.main import run

run(Gateway)
