"""The dashboard's files, as browsers get them; services/gateway/routes/static_files.py serves them."""
