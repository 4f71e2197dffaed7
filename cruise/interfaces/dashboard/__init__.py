"""The dashboard: pages over the API's queries, rendered here, with forms that do what the API does."""
