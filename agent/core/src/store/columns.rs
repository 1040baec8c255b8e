//! The columns of the tables of samples, from the registry of metrics. A file lacks the columns of metrics that are newer
//! than the program that created it; they are added when it is opened, and are empty in earlier rows.

use std::collections::BTreeSet;

use headroom_protocol::metric::{Group, Metric, Unit};
use rusqlite::{Connection, TransactionBehavior};

use super::resolution::Resolution;

/// A column, as its table declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    name: String,
    declared: &'static str,
}

impl Resolution {
    /// Returns the metrics that have a single column in a group's table: all readings of the fast group at full rate, the
    /// series of the other groups at full rate, and rolled-up bit masks.
    pub fn single(self, group: Group) -> Vec<Metric> {
        let is_single = |metric: &Metric| match (self, group) {
            (Self::Full, Group::Fast) => true,
            (Self::Full, Group::Slow | Group::Host) => metric.series().is_some(),
            (Self::TenSeconds | Self::Minute, _) => metric.unit() == Unit::ThrottleBits,
        };
        group.readings().filter(is_single).collect()
    }

    /// Returns the metrics that have four columns in a group's table: number of readings, minimum, mean and maximum.
    pub const fn rolled(self, group: Group) -> &'static [Metric] {
        match self {
            Self::Full => &[],
            Self::TenSeconds | Self::Minute => group.metrics(),
        }
    }

    /// Returns the columns of a group's table, without its key.
    fn columns(self, group: Group) -> Vec<Column> {
        let mut columns: Vec<Column> = Vec::new();
        for metric in self.rolled(group) {
            let declared = ["INTEGER NOT NULL DEFAULT 0", "NUMERIC", "REAL", "NUMERIC"];
            let column = |(name, declared)| Column { name, declared };
            columns.extend(rolled_names(*metric).into_iter().zip(declared).map(column));
        }
        for metric in self.single(group) {
            let declared = if metric.is_whole() { "INTEGER" } else { "REAL" };
            columns.push(Column { name: metric.name().to_owned(), declared });
        }
        columns
    }
}

/// Returns the names of a metric's columns in rolled-up tables, in the order of [`Resolution::all_aggregates`].
pub fn rolled_names(metric: Metric) -> [String; 4] {
    ["n", "min", "mean", "max"].map(|end| format!("{}_{end}", metric.name()))
}

/// Returns the names of the columns for [`Resolution::single`], separated by commas.
pub fn single_names(metrics: &[Metric]) -> String {
    metrics.iter().map(|metric| metric.name()).collect::<Vec<_>>().join(", ")
}

/// Whether a table lacks a column.
///
/// # Errors
/// SQLite reports an error.
pub fn is_any_missing(connection: &Connection) -> rusqlite::Result<bool> {
    missing(connection).map(|missing| !missing.is_empty())
}

/// Adds the columns that tables lack: all of them or none.
///
/// # Errors
/// SQLite reports an error.
pub fn add_missing(connection: &mut Connection) -> rusqlite::Result<()> {
    if !is_any_missing(connection)? {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another program may have added some in the meantime.
    for (table, Column { name, declared }) in missing(&transaction)? {
        transaction.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {name} {declared}"))?;
    }
    transaction.commit()
}

fn missing(connection: &Connection) -> rusqlite::Result<Vec<(&'static str, Column)>> {
    let mut select = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
    let mut missing = Vec::new();
    for group in Group::ALL {
        for resolution in Resolution::ALL {
            let table = resolution.table(group);
            let found: BTreeSet<String> =
                select.query_map([table], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            let columns = resolution.columns(group).into_iter();
            missing.extend(columns.filter(|column| !found.contains(&column.name)).map(|column| (table, column)));
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::{super::schema, *};

    /// Returns the columns of a table with their types, in its order.
    fn declared(connection: &Connection, table: &str) -> Vec<(String, String)> {
        let sql = format!("SELECT name, type FROM pragma_table_info('{table}')");
        let mut select = connection.prepare(&sql).expect("a table");
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
        rows.collect::<Result<_, _>>().expect("columns")
    }

    fn whole() -> Connection {
        let mut connection = Connection::open_in_memory().expect("memory");
        schema::update(&mut connection).expect("the tables");
        connection
    }

    #[test]
    fn tables_have_the_columns_of_the_registry() {
        let connection = whole();
        assert!(!schema::is_old(&connection).expect("columns"));
        for group in Group::ALL {
            for resolution in Resolution::ALL {
                let table = resolution.table(group);
                let mut found = declared(&connection, table);
                found.retain(|(name, _)| !["gpu", "time_ms", "missing"].contains(&&**name));
                let type_of = |declared: &str| declared.split(' ').next().map(str::to_owned).expect("a type");
                let expected = resolution.columns(group).into_iter();
                let mut expected: Vec<_> = expected.map(|column| (column.name, type_of(column.declared))).collect();
                found.sort();
                expected.sort();
                assert_eq!(found, expected, "{table}");
            }
        }
    }

    /// The reasons in `missing` are in this order. A fast reading after them keeps it.
    #[test]
    fn fast_readings_begin_with_those_of_the_first_version() {
        let connection = Connection::open_in_memory().expect("memory");
        connection.execute_batch(schema::STEPS[0]).expect("the tables");
        let found: Vec<String> = declared(&connection, "samples").into_iter().map(|(name, _)| name).collect();
        let expected: Vec<&str> = Group::Fast.readings().take(10).map(Metric::name).collect();
        assert_eq!(found[2..12], expected, "a new reading is the last of its group");
    }

    #[test]
    fn columns_that_a_file_lacks_are_added_and_empty_in_its_rows() {
        let mut connection = whole();
        connection.execute_batch("INSERT INTO gpus VALUES (1, 'GPU-0', 'H200')").expect("a GPU");
        connection.execute_batch("INSERT INTO slow_samples (time_ms, gpu) VALUES (1000, 1)").expect("a sample");
        connection
            .execute_batch(
                "INSERT INTO slow_samples_10s (gpu, time_ms, fan_percent_n, fan_percent_mean, \
            pcie_receive_bytes_per_second_n, pcie_send_bytes_per_second_n, energy_joules_n, ecc_corrected_n, \
            ecc_uncorrected_n) VALUES (1, 0, 3, 38.0, 0, 0, 0, 0, 0)",
            )
            .expect("a bucket");
        connection.execute_batch("ALTER TABLE samples DROP COLUMN throttle; \
            ALTER TABLE slow_samples DROP COLUMN energy_joules; ALTER TABLE slow_samples_10s DROP COLUMN energy_joules_n")
            .expect("columns");
        assert!(schema::is_old(&connection).expect("columns"));
        schema::update(&mut connection).expect("they are added");
        assert!(!schema::is_old(&connection).expect("columns"));
        let sql = "SELECT energy_joules IS NULL, (SELECT energy_joules_n FROM slow_samples_10s) FROM slow_samples";
        let row = connection.query_row(sql, [], |row| Ok((row.get::<_, bool>(0)?, row.get::<_, i64>(1)?)));
        assert_eq!(row.expect("a row"), (true, 0));
        assert_eq!(declared(&connection, "samples").last(), Some(&("throttle".to_owned(), "INTEGER".to_owned())));
    }

    #[test]
    fn a_column_of_a_later_program_is_left_empty() {
        let mut connection = whole();
        for (table, declared) in [("samples", ""), ("slow_samples_10s", " NOT NULL DEFAULT 0")] {
            let sql = format!("ALTER TABLE {table} ADD COLUMN later INTEGER{declared}");
            connection.execute_batch(&sql).expect("a column");
        }
        assert!(!schema::is_old(&connection).expect("columns"));
        schema::update(&mut connection).expect("it is left alone");
    }
}
