"""The dashboard: HTML pages over the API's queries, with forms that call the API."""
