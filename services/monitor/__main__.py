from services.monitor.daemon import Monitor
from shared.daemon.main import run

run(Monitor)
