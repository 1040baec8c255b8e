-- Schema 8: the kind of an event is a column, read off its JSON wherever that has it.
ALTER TABLE events ADD COLUMN kind TEXT GENERATED ALWAYS AS (
    CASE WHEN json_valid(what) THEN json_extract(what, '$.kind') END
) VIRTUAL;

-- Events without the kinds of which a run has many, and which have no line among what happened.
DROP INDEX events_told;
CREATE INDEX events_told ON events (id)
    WHERE kind NOT IN ('run_iteration', 'run_evaluation', 'run_saved', 'run_memory');
