from services.collector.daemon import Collector
from shared.daemon.main import run

run(Collector)
