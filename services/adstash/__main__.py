from services.adstash.daemon import Adstash
from shared.daemon.main import run

run(Adstash)
