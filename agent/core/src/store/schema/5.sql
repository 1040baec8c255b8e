-- Schema 5: runs that the agent starts itself. `place` is a run's place among those that wait, NULL for one that does
-- not; `stopping_ms` is since when it is asked to end.
CREATE TABLE trainings (
    run TEXT PRIMARY KEY,
    place INTEGER UNIQUE,
    stopping_ms INTEGER
) WITHOUT ROWID;
