from roost.cli.main import entry

entry()
