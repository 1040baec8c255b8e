-- Schema 4: the alerts that are on, and the newest of what happened.

-- Alerts that went off and are not over, each written with the events that change it. `event` is the number of the one
-- by which it went off, `alert` its rule as JSON. One that was dismissed stays, unseen, until it is over.
CREATE TABLE alerts (
    event INTEGER PRIMARY KEY,
    time_ms INTEGER NOT NULL,
    run TEXT,
    gpu TEXT,
    alert TEXT NOT NULL,
    value REAL,
    dismissed INTEGER NOT NULL
);

-- Events that are not of one printed iteration, of which a run has millions.
CREATE INDEX events_told ON events (id) WHERE substr(what, 1, 23) <> '{"kind":"run_iteration"';
