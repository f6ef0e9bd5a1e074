-- Leases by when they pass. In the order of places, each claim looked at all tasks that are under a lease.

DROP INDEX tasks_leased;
CREATE INDEX tasks_leased ON tasks (board, lease_expires_ms, position) WHERE lease_expires_ms IS NOT NULL;
