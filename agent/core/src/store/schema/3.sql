-- Schema 3: which process watches a run, so that a later one can ask whether it lives; NULL where the system
-- does not say.
ALTER TABLE runs ADD COLUMN watcher TEXT;
