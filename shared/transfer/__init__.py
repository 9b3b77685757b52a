"""File transfer between a schedd and whoever holds a capability token: `bundle` and `client`."""
