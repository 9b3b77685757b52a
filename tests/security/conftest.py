"""What several modules here use."""

import pytest

from tests.security.issuers import Gate, RealIssuer


@pytest.fixture
async def issuer():
    made = await RealIssuer().start()
    yield made
    await made.stop()


@pytest.fixture
async def gate(issuer):
    made = Gate(issuer)
    yield made
    await made.scitokens.close()
