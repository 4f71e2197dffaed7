"""OpenID Connect: who somebody is by an identity provider's signed word."""
