from __future__ import annotations

import argparse
import json
from pathlib import Path

import bench.fairshare
from bench.fairshare import scenarios
from bench.fairshare.simulation import at


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.fairshare",
        description=bench.fairshare.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--plot", type=Path, metavar="DIR", help="write the plots into this directory")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures into this file")
    asked = parser.parse_args()
    figures: dict[str, object] = {}
    for name, scenario in scenarios.SCENARIOS.items():
        moments = scenario.run()
        shown = [(hour, at(moments, hour)) for hour in scenario.hours]
        users = list(moments[0].cores)
        print(f"{scenario.title}\n{'hour':>8}", *(f"{f'{user}: RUP':>20} {'cores':>8}" for user in users))
        for hour, moment in shown:
            print(f"{hour:>8g}", *(f"{moment.rup[user]:>20.4f} {moment.cores[user]:>8.3f}" for user in users))
        print()
        figures[name] = [{"hour": hour, "rup": moment.rup, "cores": moment.cores} for hour, moment in shown]
    print("EUP 5, 10, 20 on 70 cores")
    for title, wanted in (("all want all", scenarios.ENDLESS), ("A wants 10", 10.0)):
        cores = scenarios.inverse_ratio(wanted)
        print(f"{title:>20}", *(f"{user} {got:.2f}" for user, got in cores.items()))
        figures[f"inverse-ratio, {title}"] = dict(cores)
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1) + "\n")
    if asked.plot:
        from bench.fairshare import plots  # a development dependency, needed for this only

        for path in plots.write(asked.plot):
            print(path)


if __name__ == "__main__":
    main()
