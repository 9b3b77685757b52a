from services.journal.daemon import Journal
from shared.daemon.main import run

run(Journal)
