"""Writes what an image is made of as a CycloneDX 1.6 document (JSON): `sbom.py SITE_PACKAGES DPKG_STATUS [NAME]`.

Python distributions come from their metadata, Debian packages from dpkg's list of what is installed. The interpreter is
the one that runs this: images of Python have it beside dpkg's. The document goes
to standard output. It is made while the image is built (Dockerfile), by a library that stays out of it.
"""

import platform
import sys
from collections.abc import Iterator
from email.parser import HeaderParser
from importlib.metadata import distributions
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL


def python_components(site_packages: str) -> Iterator[Component]:
    """Python distributions that are installed in this directory."""
    licenses = LicenseFactory()
    for found in distributions(path=[site_packages]):
        expression = found.metadata.get("License-Expression")
        purl = PackageURL("pypi", name=found.name.lower().replace("_", "-"), version=found.version)
        yield Component(
            type=ComponentType.LIBRARY,
            name=found.name,
            version=found.version,
            purl=purl,
            bom_ref=str(purl),
            licenses=[licenses.make_with_expression(expression)] if expression else None,
        )


def debian_components(status: str) -> Iterator[Component]:
    """Debian packages that dpkg's status file (its text) calls installed."""
    for paragraph in status.strip().split("\n\n"):
        package = HeaderParser().parsestr(paragraph)
        if package["Status"] != "install ok installed":
            continue
        purl = PackageURL("deb", "debian", package["Package"], package["Version"], {"arch": package["Architecture"]})
        yield Component(
            type=ComponentType.LIBRARY,
            name=package["Package"],
            version=package["Version"],
            purl=purl,
            bom_ref=str(purl),
        )


def interpreter() -> Component:
    """CPython itself."""
    version = platform.python_version()
    purl = PackageURL("generic", name="python", version=version)
    return Component(type=ComponentType.PLATFORM, name="python", version=version, purl=purl, bom_ref=str(purl))


def bill_of_materials(name: str, components: list[Component]) -> str:
    """The document about an image of this name."""
    image = Component(type=ComponentType.CONTAINER, name=name, bom_ref=name)
    bom = Bom(components=components, metadata=BomMetaData(component=image))
    bom.register_dependency(image, components)
    return JsonV1Dot6(bom).output_as_string(indent=2)


if __name__ == "__main__":
    site_packages, status, *name = sys.argv[1:]
    parts = [
        interpreter(),
        *python_components(site_packages),
        *debian_components(Path(status).read_text(encoding="utf-8")),
    ]
    sys.stdout.write(bill_of_materials(name[0] if name else "roost/pool", parts))
