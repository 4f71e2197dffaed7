#!/bin/sh
# Prints Secrets with new passwords for a database, once, for `kubectl apply -f -` or to be sealed for Git:
#   database-secrets.sh HOST [DATABASE]
# cruise-database is what database.existingSecret and postgres.existingSecret name; cruise-owner, cruise-serve and
# cruise-webhook are what cloudnative-pg.yaml names.
set -eu
host=${1:?usage: database-secrets.sh HOST [DATABASE]}
database=${2:-cruise}
new_password() { LC_ALL=C tr -dc A-Za-z0-9 </dev/urandom | head -c 32; }
owner=$(new_password) serve=$(new_password) webhook=$(new_password) admin=$(new_password)
cat <<YAML
apiVersion: v1
kind: Secret
metadata:
  name: cruise-database
type: Opaque
stringData:
  owner-url: postgresql://cruise_owner:$owner@$host:5432/$database
  url: postgresql://cruise_serve:$serve@$host:5432/$database
  webhook-url: postgresql://cruise_webhook:$webhook@$host:5432/$database
  owner-password: $owner
  serve-password: $serve
  webhook-password: $webhook
  admin-password: $admin
YAML
print_role() {
    cat <<YAML
---
apiVersion: v1
kind: Secret
metadata:
  name: cruise-$1
type: kubernetes.io/basic-auth
stringData:
  username: cruise_$1
  password: $2
YAML
}
print_role owner "$owner"
print_role serve "$serve"
print_role webhook "$webhook"
