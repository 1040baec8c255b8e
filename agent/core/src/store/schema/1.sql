-- Schema 1 of history. What was released is never changed: a change is the next file, and a step of schema.rs.

-- Cards that samples are of.
CREATE TABLE gpus (
    id INTEGER PRIMARY KEY,
    uuid TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL
);

-- Samples at full rate. NULL is a missing reading; `missing` has three bits of the reason of each, in the order of the
-- columns. The time leads the key: what is written each second lies together, and what is old is one range.
CREATE TABLE samples (
    time_ms INTEGER NOT NULL,
    gpu INTEGER NOT NULL,
    memory_used_bytes INTEGER,
    memory_free_bytes INTEGER,
    memory_reserved_bytes INTEGER,
    utilization_percent INTEGER,
    memory_utilization_percent INTEGER,
    power_watts REAL,
    clock_sm_mhz INTEGER,
    clock_memory_mhz INTEGER,
    temperature_celsius INTEGER,
    throttle INTEGER,
    missing INTEGER NOT NULL,
    PRIMARY KEY (time_ms, gpu)
) WITHOUT ROWID;

-- Of 10 seconds from time_ms on: how many readings there were, least, mean and greatest; of throttle every bit that
-- was set.
CREATE TABLE samples_10s (
    gpu INTEGER NOT NULL,
    time_ms INTEGER NOT NULL,
    memory_used_bytes_n INTEGER NOT NULL,
    memory_used_bytes_min NUMERIC,
    memory_used_bytes_mean REAL,
    memory_used_bytes_max NUMERIC,
    utilization_percent_n INTEGER NOT NULL,
    utilization_percent_min NUMERIC,
    utilization_percent_mean REAL,
    utilization_percent_max NUMERIC,
    memory_utilization_percent_n INTEGER NOT NULL,
    memory_utilization_percent_min NUMERIC,
    memory_utilization_percent_mean REAL,
    memory_utilization_percent_max NUMERIC,
    power_watts_n INTEGER NOT NULL,
    power_watts_min NUMERIC,
    power_watts_mean REAL,
    power_watts_max NUMERIC,
    temperature_celsius_n INTEGER NOT NULL,
    temperature_celsius_min NUMERIC,
    temperature_celsius_mean REAL,
    temperature_celsius_max NUMERIC,
    clock_sm_mhz_n INTEGER NOT NULL,
    clock_sm_mhz_min NUMERIC,
    clock_sm_mhz_mean REAL,
    clock_sm_mhz_max NUMERIC,
    clock_memory_mhz_n INTEGER NOT NULL,
    clock_memory_mhz_min NUMERIC,
    clock_memory_mhz_mean REAL,
    clock_memory_mhz_max NUMERIC,
    throttle INTEGER,
    PRIMARY KEY (gpu, time_ms)
) WITHOUT ROWID;

-- The same of a minute.
CREATE TABLE samples_1min (
    gpu INTEGER NOT NULL,
    time_ms INTEGER NOT NULL,
    memory_used_bytes_n INTEGER NOT NULL,
    memory_used_bytes_min NUMERIC,
    memory_used_bytes_mean REAL,
    memory_used_bytes_max NUMERIC,
    utilization_percent_n INTEGER NOT NULL,
    utilization_percent_min NUMERIC,
    utilization_percent_mean REAL,
    utilization_percent_max NUMERIC,
    memory_utilization_percent_n INTEGER NOT NULL,
    memory_utilization_percent_min NUMERIC,
    memory_utilization_percent_mean REAL,
    memory_utilization_percent_max NUMERIC,
    power_watts_n INTEGER NOT NULL,
    power_watts_min NUMERIC,
    power_watts_mean REAL,
    power_watts_max NUMERIC,
    temperature_celsius_n INTEGER NOT NULL,
    temperature_celsius_min NUMERIC,
    temperature_celsius_mean REAL,
    temperature_celsius_max NUMERIC,
    clock_sm_mhz_n INTEGER NOT NULL,
    clock_sm_mhz_min NUMERIC,
    clock_sm_mhz_mean REAL,
    clock_sm_mhz_max NUMERIC,
    clock_memory_mhz_n INTEGER NOT NULL,
    clock_memory_mhz_min NUMERIC,
    clock_memory_mhz_mean REAL,
    clock_memory_mhz_max NUMERIC,
    throttle INTEGER,
    PRIMARY KEY (gpu, time_ms)
) WITHOUT ROWID;

-- What happened, as JSON. A number is never given twice, deleted or not.
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ms INTEGER NOT NULL,
    run TEXT,
    what TEXT NOT NULL
);
CREATE INDEX events_by_run ON events (run, id) WHERE run IS NOT NULL;

-- Runs as their events made them, as JSON. `seen_ms` is when the run's watcher last said that it is there.
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    started_ms INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    seen_ms INTEGER NOT NULL,
    run TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX runs_by_time ON runs (ended, started_ms);

-- Single values: what the owner set, and how far samples are rolled up.
CREATE TABLE facts (
    name TEXT PRIMARY KEY,
    value NOT NULL
) WITHOUT ROWID;
