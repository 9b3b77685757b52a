import sys

from services.master.daemon import main

sys.exit(main(sys.argv[1:]))
