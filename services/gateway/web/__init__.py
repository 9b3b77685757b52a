"""The dashboard's files, as browsers get them; services/gateway/api/web.py serves them."""
