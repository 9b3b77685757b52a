from services.defrag.daemon import Defrag
from shared.daemon.main import run

run(Defrag)
