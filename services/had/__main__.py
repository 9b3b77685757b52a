from services.had.daemon import Had
from shared.daemon.main import run

run(Had)
