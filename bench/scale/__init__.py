"""How large a pool may be: real daemons and servers, and stand-ins for its machines that speak the real protocol."""
