-- Three roles for cruise's database: one that owns the schema (`cruise migrate`), one that writes rows (`cruise serve`) and
-- one that reads (`cruise webhook`). An administrator of the server runs it once, connected to that database:
--   psql -v ON_ERROR_STOP=1 -d cruise -f deploy/database.sql
-- and then gives each role its password: \password cruise_owner
BEGIN;
CREATE ROLE cruise_owner LOGIN;
CREATE ROLE cruise_serve LOGIN;
CREATE ROLE cruise_webhook LOGIN;
ALTER ROLE cruise_webhook SET default_transaction_read_only = on;

DO $$
BEGIN
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO cruise_owner, cruise_serve, cruise_webhook', current_database());
    -- Rows come by COPY into a temporary table first.
    EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO cruise_serve', current_database());
END
$$;

REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO cruise_owner;
GRANT USAGE ON SCHEMA public TO cruise_serve, cruise_webhook;

-- What migrations make is granted as it is made.
ALTER DEFAULT PRIVILEGES FOR ROLE cruise_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO cruise_serve;
ALTER DEFAULT PRIVILEGES FOR ROLE cruise_owner IN SCHEMA public
    GRANT SELECT ON TABLES TO cruise_webhook;

-- What another role made before, where one had all rights until now: REASSIGN OWNED BY that_role TO cruise_owner;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO cruise_serve;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO cruise_webhook;
COMMIT;
