"""Compares Roost with the reference implementation on cases that are made up: `bin/fidelity` (docs/fidelity.md).

A family makes cases from dice, and has two sides that answer the same questions of a case: ours, and the reference's,
which is asked in a process of its own (`asked`), since some texts end it. What is known to differ, and why, stands
beside each family.
"""
