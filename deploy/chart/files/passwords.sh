# Run once by the image of Postgres, after database.sql.
psql -v ON_ERROR_STOP=1 --no-psqlrc --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
    -v owner="$OWNER_PASSWORD" -v serve="$SERVE_PASSWORD" -v webhook="$WEBHOOK_PASSWORD" <<'SQL'
ALTER ROLE cruise_owner PASSWORD :'owner';
ALTER ROLE cruise_serve PASSWORD :'serve';
ALTER ROLE cruise_webhook PASSWORD :'webhook';
SQL
