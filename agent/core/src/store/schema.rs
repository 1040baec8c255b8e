//! The tables and their versions. An older file is migrated step by step; a newer one remains unchanged. The columns of
//! readings come from the registry of metrics (`columns.rs`), and need no new version.

use rusqlite::{Connection, TransactionBehavior};

use super::{columns, error::FileUnusable, samples::to_sql};

/// Migrations. The first creates version 1 in an empty file; each later one creates the next version.
pub const STEPS: &[&str] = &[
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
    include_str!("schema/5.sql"),
    include_str!("schema/6.sql"),
    include_str!("schema/7.sql"),
    include_str!("schema/8.sql"),
    include_str!("schema/9.sql"),
];

/// Migrates a file to the last version, and adds a column for each metric that it lacks.
///
/// # Errors
/// The file has a newer version, is not a history, or cannot be written.
pub fn update(connection: &mut Connection) -> Result<(), FileUnusable> {
    migrate(connection, STEPS)?;
    Ok(columns::add_missing(connection)?)
}

/// Whether a file needs [`update`]. A file without our tables has version 0 and needs it too.
///
/// # Errors
/// The file cannot be read.
pub fn is_old(connection: &Connection) -> Result<bool, rusqlite::Error> {
    Ok(version(connection)? < STEPS.len() || columns::is_any_missing(connection)?)
}

/// Returns a number that SQLite increments with every change of the tables or their columns.
///
/// # Errors
/// The file cannot be read.
pub fn change_count(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.pragma_query_value(None, "schema_version", |row| row.get(0))
}

/// Migrates a file to the last version of `steps`, each step completely or not at all.
///
/// # Errors
/// The file has a newer version, is not a history, or cannot be written.
fn migrate(connection: &mut Connection, steps: &[&str]) -> Result<(), FileUnusable> {
    let known = steps.len();
    loop {
        let version = version(connection)?;
        if version > known {
            return Err(FileUnusable::Newer { found: version, known });
        }
        let Some(step) = steps.get(version) else { return Ok(()) };
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another program may have migrated the file in the meantime.
        if self::version(&transaction)? == version {
            transaction.execute_batch(step)?;
            transaction.pragma_update(None, "user_version", to_sql(version as u64 + 1))?;
        }
        transaction.commit()?;
    }
}

/// Returns the version of a file; 0 if it has none of our tables.
///
/// # Errors
/// The file cannot be read.
pub fn version(connection: &Connection) -> Result<usize, rusqlite::Error> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    // Negative versions were never used; they count as 0.
    Ok(usize::try_from(version).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use headroom_protocol::metric::Group;

    use super::{super::resolution::Resolution, *};

    #[test]
    fn released_schema_steps_are_unchanged() {
        let sums: Vec<u32> = STEPS.iter().map(|step| crc32fast::hash(step.as_bytes())).collect();
        assert_eq!(
            sums,
            [
                3_825_197_785,
                2_217_841_808,
                2_562_482_200,
                373_728_532,
                1_755_582_714,
                724_863_699,
                3_495_423_613,
                708_294_809,
                590_722_017
            ],
            "released steps never change; add a new one"
        );
    }

    fn of_version(steps: &[&str]) -> Connection {
        let mut connection = Connection::open_in_memory().expect("memory");
        migrate(&mut connection, steps).expect("it is made");
        connection
    }

    #[test]
    fn an_older_file_is_brought_forward_with_what_it_holds() {
        let older = &["CREATE TABLE a (x INTEGER); INSERT INTO a VALUES (7);"];
        let newer = &[older[0], "ALTER TABLE a ADD COLUMN y INTEGER;", "UPDATE a SET y = 2 * x;"];
        let mut connection = of_version(older);
        connection.execute("INSERT INTO a VALUES (8)", []).expect("a row");
        migrate(&mut connection, newer).expect("it is brought forward");
        assert_eq!(version(&connection).expect("a version"), 3);
        let sum: i64 = connection.query_row("SELECT sum(y) FROM a", [], |row| row.get(0)).expect("rows");
        assert_eq!(sum, 30);
    }

    #[test]
    fn a_history_of_the_first_version_keeps_its_samples_and_gets_the_slow_ones() {
        let mut connection = of_version(&STEPS[..1]);
        connection.execute_batch("INSERT INTO gpus VALUES (1, 'GPU-0', 'H200')").expect("a GPU");
        let sample = "INSERT INTO samples (time_ms, gpu, power_watts, missing) VALUES (1000, 1, 250.5, 0)";
        connection.execute_batch(sample).expect("a sample");
        update(&mut connection).expect("it is brought forward");
        assert_eq!(version(&connection).expect("a version"), STEPS.len());
        let watts: f64 = connection.query_row("SELECT power_watts FROM samples", [], |row| row.get(0)).expect("it");
        assert!((watts - 250.5).abs() < f64::EPSILON);
        // Every selected column exists.
        for group in Group::ALL {
            for resolution in Resolution::ALL {
                let (table, columns) = (resolution.table(group), resolution.all_aggregates(group));
                let sql = format!("SELECT gpu, time_ms, {columns} FROM {table}");
                connection.prepare(&sql).unwrap_or_else(|error| panic!("{table}: {error}"));
            }
        }
    }

    #[test]
    fn a_file_of_the_first_version_keeps_its_events_and_gets_alerts() {
        let mut connection = of_version(&STEPS[..1]);
        let sql = "INSERT INTO events (time_ms, what) VALUES (7, '{\"kind\":\"history_resumed\"}')";
        connection.execute(sql, []).expect("an event");
        migrate(&mut connection, STEPS).expect("it is brought forward");
        assert_eq!(version(&connection).expect("a version"), STEPS.len());
        let count = |table: &str| -> i64 {
            connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("a table")
        };
        let query = format!("events INDEXED BY events_told WHERE {}", crate::store::events::HAS_LINE);
        assert_eq!(["events", &query, "alerts"].map(count), [1, 1, 0]);
    }

    #[test]
    fn events_of_version_7_get_their_kinds() {
        let mut connection = of_version(&STEPS[..7]);
        let kinds = ["run_iteration", "run_iteration", "run_saved", "alert_over"];
        let events = kinds.map(|kind| format!("{{\"iter\":7,\"kind\":\"{kind}\"}}"));
        for what in events.iter().map(String::as_str).chain(["no JSON", "[]"]) {
            connection.execute("INSERT INTO events (time_ms, what) VALUES (7, ?1)", [what]).expect("an event");
        }
        migrate(&mut connection, STEPS).expect("it is brought forward");
        let mut select = connection.prepare("SELECT kind FROM events ORDER BY id").expect("a query");
        let found = select.query_map([], |row| row.get(0)).expect("rows").collect::<Result<Vec<Option<String>>, _>>();
        let expected: Vec<_> = kinds.into_iter().map(Some).chain([None, None]).collect();
        assert_eq!(found.expect("kinds").iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
        let query = format!("SELECT id FROM events INDEXED BY events_told WHERE {}", crate::store::events::HAS_LINE);
        let ids: Vec<i64> = connection
            .prepare(&query)
            .and_then(|mut select| select.query_map([], |row| row.get(0))?.collect())
            .expect("an index");
        assert_eq!(ids, [4]);
    }

    #[test]
    fn a_step_that_fails_leaves_the_version_before_it() {
        let older = &["CREATE TABLE a (x INTEGER);"];
        let mut connection = of_version(older);
        let broken = &[older[0], "ALTER TABLE a ADD COLUMN y INTEGER; INSERT INTO nowhere VALUES (1);"];
        migrate(&mut connection, broken).expect_err("it fails");
        assert_eq!(version(&connection).expect("a version"), 1);
        connection.prepare("SELECT y FROM a").expect_err("the column is not there");
    }

    #[test]
    fn a_newer_file_is_left_alone() {
        let mut connection = of_version(STEPS);
        connection.pragma_update(None, "user_version", 99).expect("a version");
        assert!(
            matches!(migrate(&mut connection, STEPS), Err(FileUnusable::Newer { found: 99, known }) if known == STEPS.len())
        );
    }
}
