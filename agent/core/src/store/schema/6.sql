-- Schema 6: every line of training figures that a run printed. Events have only what is told live, which is thinned.

-- Runs that have rows in `printed`. `n` is the number of those rows. Events up to `since_event` are of a version that kept
-- the run's figures as events alone.
CREATE TABLE printed_runs (
    key INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE,
    n INTEGER NOT NULL,
    since_event INTEGER NOT NULL
);

-- The lines in the order in which they were printed. An iteration has a `time_ms`, an evaluation has none. A row with
-- `left_out` stands for so many lines that were not kept, and has no figures.
CREATE TABLE printed (
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    printed_ms INTEGER NOT NULL,
    left_out INTEGER,
    iter INTEGER,
    loss REAL,
    time_ms REAL,
    tokens_per_second REAL,
    mfu_printed_percent REAL,
    mfu_percent REAL,
    learning_rate REAL,
    gradient_norm REAL,
    train_loss REAL,
    val_loss REAL,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID;
