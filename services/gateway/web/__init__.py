"""The dashboard's files, as browsers get them (services/gateway/api/web.py serves them). docs/dashboard.md tells of it."""
