-- Schema 7: how long samples are kept is counted in the time that an agent ran, and not by the wall clock, which may be
-- wrong.

-- Times of the wall clock in which samples were recorded, without a step of that clock within. `recorded_ms` is how long
-- agents had recorded before the span began: the age of a sample is counted from there. Two spans overlap where the
-- clock was set back.
CREATE TABLE spans (
    id INTEGER PRIMARY KEY,
    begin_ms INTEGER NOT NULL,
    end_ms INTEGER NOT NULL,
    recorded_ms INTEGER NOT NULL
);

-- All that there is becomes one span.
INSERT INTO spans SELECT 1, min(first), max(last), 0 FROM (
    SELECT min(time_ms) AS first, max(time_ms) AS last FROM samples
    UNION ALL SELECT min(time_ms), max(time_ms) FROM samples_10s
    UNION ALL SELECT min(time_ms), max(time_ms) FROM samples_1min
    UNION ALL SELECT min(time_ms), max(time_ms) FROM slow_samples
    UNION ALL SELECT min(time_ms), max(time_ms) FROM slow_samples_10s
    UNION ALL SELECT min(time_ms), max(time_ms) FROM slow_samples_1min
    UNION ALL SELECT min(time_ms), max(time_ms) FROM host_samples
    UNION ALL SELECT min(time_ms), max(time_ms) FROM host_samples_10s
    UNION ALL SELECT min(time_ms), max(time_ms) FROM host_samples_1min
) HAVING min(first) IS NOT NULL;

-- Up to where each table has been cut, in recorded time.
INSERT INTO facts SELECT 'cut_' || name, max(0, coalesce(first, end_ms + 1) - begin_ms) FROM spans, (
    SELECT 'samples' AS name, min(time_ms) AS first FROM samples
    UNION ALL SELECT 'samples_10s', min(time_ms) FROM samples_10s
    UNION ALL SELECT 'samples_1min', min(time_ms) FROM samples_1min
    UNION ALL SELECT 'slow_samples', min(time_ms) FROM slow_samples
    UNION ALL SELECT 'slow_samples_10s', min(time_ms) FROM slow_samples_10s
    UNION ALL SELECT 'slow_samples_1min', min(time_ms) FROM slow_samples_1min
    UNION ALL SELECT 'host_samples', min(time_ms) FROM host_samples
    UNION ALL SELECT 'host_samples_10s', min(time_ms) FROM host_samples_10s
    UNION ALL SELECT 'host_samples_1min', min(time_ms) FROM host_samples_1min
);
