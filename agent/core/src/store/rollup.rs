//! Roll-up and deletion of samples. Old samples become coarser; samples that are too old or exceed the size limit are
//! deleted. Ages are in recorded time (`spans.rs`), so a step of the wall clock does not make a sample old.
//!
//! Ten-second rows are computed from full-rate samples, and minute rows from six ten-second rows. Each bucket is
//! written as a whole and repeating it gives the same row, so the program may be killed at any time. Full-rate samples
//! are deleted only after they are rolled up.

use std::{fmt::Write as _, ops::Range};

use headroom_protocol::metric::Group;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use super::{
    FULL_MS, RetentionLimits,
    columns::rolled_names,
    printed,
    resolution::{CUT_MS, Resolution, floor},
    samples::{from_sql, to_sql},
    spans,
};
use crate::logging::HISTORY;

/// Number of throttle bits that are rolled up; nvml.h defines nine.
const THROTTLE_BITS: u32 = 16;
/// Age at which a bucket is complete although no later sample exists, because the driver or the agent was gone.
const SETTLED_MS: u64 = 60_000;
/// Maximum number of cuts per pass for a file that is too large. Each cut removes a sixteenth of the retained time.
const CUTS_MAX: u32 = 16;
/// Number of free pages that are not worth returning to the system: 4 MiB.
const FREE_PAGES_KEPT: u64 = 1024;
/// Number of pages returned per pass: 16 MiB, in some tens of milliseconds.
const FREE_PAGES_GIVEN: u64 = 4096;

/// Name of the fact that stores how far a group is rolled up.
fn fact(resolution: Resolution, group: Group) -> String {
    format!("rolled_{}", resolution.table(group))
}

fn rolled_until(connection: &Connection, resolution: Resolution, group: Group) -> rusqlite::Result<u64> {
    let mut select = connection.prepare_cached("SELECT value FROM facts WHERE name = ?1")?;
    let value: Option<i64> = select.query_row([fact(resolution, group)], |row| row.get(0)).optional()?;
    Ok(value.map_or(0, from_sql))
}

fn set_rolled_until(
    transaction: &Transaction<'_>,
    resolution: Resolution,
    group: Group,
    time_ms: u64,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO facts VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
    transaction.prepare_cached(sql)?.execute((fact(resolution, group), to_sql(time_ms))).map(|_| ())
}

/// Reopens buckets that get more samples because the clock was set back; they are rolled up again. `oldest` has the
/// time of the oldest new sample for each group with new samples.
///
/// # Errors
/// SQLite reports an error.
pub fn reopen(transaction: &Transaction<'_>, oldest: &[(Group, u64)]) -> rusqlite::Result<()> {
    let Some(oldest_ms) = oldest.iter().map(|(_, time_ms)| *time_ms).min() else { return Ok(()) };
    // This runs once per second, and usually nothing of the range was rolled up.
    let sql = "SELECT max(value) FROM facts WHERE name BETWEEN 'rolled_' AND 'rolled_z'";
    let most: Option<i64> = transaction.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    if most.map_or(0, from_sql) <= oldest_ms {
        return Ok(());
    }
    for &(group, oldest_ms) in oldest {
        for resolution in Resolution::ROLLED {
            let begin_ms = floor(oldest_ms, resolution.step_ms(group));
            if begin_ms < rolled_until(transaction, resolution, group)? {
                set_rolled_until(transaction, resolution, group, begin_ms)?;
            }
        }
    }
    Ok(())
}

/// Rolls up a group's complete buckets: those that end before its newest sample or are old enough.
///
/// # Errors
/// SQLite reports an error.
pub fn roll_up(transaction: &Transaction<'_>, group: Group, newest_ms: u64, now_ms: u64) -> rusqlite::Result<()> {
    roll_up_until(transaction, group, newest_ms.max(now_ms.saturating_sub(SETTLED_MS)))
}

/// Rolls up the rest of a span that has ended, and continues at the start of the next span.
///
/// # Errors
/// SQLite reports an error.
pub fn pass_on(transaction: &Transaction<'_>, end_ms: u64, begin_ms: u64) -> rusqlite::Result<()> {
    for group in Group::ALL {
        roll_up_until(transaction, group, floor(end_ms, CUT_MS).saturating_add(CUT_MS))?;
        for resolution in Resolution::ROLLED {
            set_rolled_until(transaction, resolution, group, floor(begin_ms, resolution.step_ms(group)))?;
        }
    }
    Ok(())
}

fn roll_up_until(transaction: &Transaction<'_>, group: Group, until_ms: u64) -> rusqlite::Result<()> {
    for resolution in Resolution::ROLLED {
        let until_ms = floor(until_ms, resolution.step_ms(group));
        let from_ms = rolled_until(transaction, resolution, group)?;
        if from_ms >= until_ms {
            continue;
        }
        let all = from_ms..until_ms;
        // If the clock was set back, a bucket may contain samples that no longer exist at the finer resolution.
        let cut = spans::cut(&spans::all(transaction)?, spans::cut_at(transaction, finer(resolution), group)?);
        let merged = spans::within(std::slice::from_ref(&all), &cut);
        for (ranges, is_merged) in [(spans::without(&[all], &cut), false), (merged, true)] {
            let mut insert = transaction.prepare_cached(&insert_sql(resolution, group, is_merged))?;
            for Range { start, end } in ranges {
                insert.execute([to_sql(start), to_sql(end)])?;
            }
        }
        set_rolled_until(transaction, resolution, group, until_ms)?;
    }
    Ok(())
}

fn finer(resolution: Resolution) -> Resolution {
    if resolution == Resolution::Minute { Resolution::TenSeconds } else { Resolution::Full }
}

fn insert_sql(resolution: Resolution, group: Group, is_merged: bool) -> String {
    let (table, step_ms) = (resolution.table(group), resolution.step_ms(group));
    let finer = finer(resolution);
    // The key of full-rate tables begins with the time, that of rolled-up tables with the GPU: one range per GPU.
    let of_gpus = if finer == Resolution::Full { String::new() } else { format!("gpu IN ({}) AND ", rows_of(group)) };
    let from = finer.table(group);
    let mut columns = finer.all_aggregates(group);
    let mut names: Vec<String> = resolution.rolled(group).iter().flat_map(|metric| rolled_names(*metric)).collect();
    for mask in resolution.single(group) {
        let column = mask.name();
        for bit in 0..THROTTLE_BITS {
            let or = if bit == 0 { ", " } else { " | " };
            let _ = write!(columns, "{or}max({column} & {})", 1_u32 << bit);
        }
        names.push(column.to_owned());
    }
    let names = names.join(", ");
    let conflict = if is_merged { merge_sql(resolution, group) } else { String::new() };
    let or_replace = if is_merged { "" } else { "OR REPLACE " };
    format!(
        "INSERT {or_replace}INTO {table} (gpu, time_ms, {names}) SELECT gpu, time_ms / {step_ms} * {step_ms} AS bucket, {columns} \
         FROM {from} WHERE {of_gpus}time_ms >= ?1 AND time_ms < ?2 GROUP BY gpu, bucket{conflict}"
    )
}

/// Returns SQL that merges an existing bucket with a new one.
fn merge_sql(resolution: Resolution, group: Group) -> String {
    let mut columns: Vec<String> = Vec::new();
    for metric in resolution.rolled(group) {
        let c = metric.name();
        columns.push(format!(
            "{c}_n = {c}_n + excluded.{c}_n, {c}_min = min(ifnull({c}_min, excluded.{c}_min), ifnull(excluded.{c}_min, \
             {c}_min)), {c}_max = max(ifnull({c}_max, excluded.{c}_max), ifnull(excluded.{c}_max, {c}_max)), {c}_mean = \
             (ifnull({c}_mean, 0) * {c}_n + ifnull(excluded.{c}_mean, 0) * excluded.{c}_n) / nullif({c}_n + \
             excluded.{c}_n, 0)"
        ));
    }
    for mask in resolution.single(group) {
        let c = mask.name();
        columns.push(format!("{c} = ifnull({c} | excluded.{c}, ifnull({c}, excluded.{c}))"));
    }
    format!(" ON CONFLICT (gpu, time_ms) DO UPDATE SET {}", columns.join(", "))
}

/// Deletes samples that are older than the limit of their resolution.
///
/// # Errors
/// SQLite reports an error.
pub fn cut_old(transaction: &Transaction<'_>, keep: &RetentionLimits) -> rusqlite::Result<()> {
    let (recorded_ms, bound_ms) = (spans::recorded_ms(transaction)?, spans::cut_for_bound(transaction)?);
    for group in Group::ALL {
        for resolution in Resolution::ALL {
            let mut cut_ms = recorded_ms.saturating_sub(keep.of(resolution));
            if resolution == Resolution::Full {
                for rolled in Resolution::ROLLED {
                    let rolled_ms = rolled_until(transaction, rolled, group)?;
                    cut_ms = cut_ms.min(spans::recorded_at(transaction, rolled_ms)?);
                }
            }
            cut(transaction, resolution, group, cut_ms.max(bound_ms))?;
        }
    }
    spans::forget(transaction)
}

/// Cuts a table at a recorded time.
fn cut(transaction: &Transaction<'_>, resolution: Resolution, group: Group, cut_ms: u64) -> rusqlite::Result<()> {
    // Deleted samples do not return if the owner raises the limit.
    let cut_ms = cut_ms.max(spans::cut_at(transaction, resolution, group)?);
    let spans = spans::all(transaction)?;
    if spans.is_empty() {
        return Ok(());
    }
    let table = resolution.table(group);
    let kept = spans::kept(&spans, cut_ms);
    for Range { start, end } in spans::without(std::slice::from_ref(&(0..u64::MAX)), &kept) {
        let range = [to_sql(start), to_sql(end)];
        if resolution == Resolution::Full {
            transaction.execute(&format!("DELETE FROM {table} WHERE time_ms >= ?1 AND time_ms < ?2"), range)?;
        } else {
            // The key begins with the GPU: one range per GPU.
            let mut gpus = transaction.prepare_cached(rows_of(group))?;
            let gpus: Vec<i64> = gpus.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
            let sql = format!("DELETE FROM {table} WHERE gpu = ?3 AND time_ms >= ?1 AND time_ms < ?2");
            for gpu in gpus {
                transaction.execute(&sql, [range[0], range[1], gpu])?;
            }
        }
    }
    spans::set_cut_at(transaction, resolution, group, cut_ms)
}

/// Returns SQL that selects the row IDs of a group's tables.
const fn rows_of(group: Group) -> &'static str {
    match group {
        Group::Fast | Group::Slow => "SELECT id FROM gpus",
        Group::Host => "SELECT 0 AS id",
    }
}

/// Deletes the oldest samples of all resolutions while the file exceeds its size limit, except for the newest hour.
/// Then returns free pages to the system.
///
/// # Errors
/// SQLite reports an error.
pub fn bound(connection: &mut Connection, keep: &RetentionLimits) -> rusqlite::Result<()> {
    for _ in 0..CUTS_MAX {
        // Runs' printed lines remain until the runs are deleted, and do not count against the limit for samples.
        if used_bytes(connection)?.saturating_sub(printed::bytes(connection)?) <= keep.bytes_max {
            break;
        }
        let recorded_ms = spans::recorded_ms(connection)?;
        let spared_ms = recorded_ms.saturating_sub(FULL_MS);
        let Some(oldest_ms) = oldest(connection)?.filter(|oldest_ms| *oldest_ms < spared_ms) else { break };
        let cut_ms = (oldest_ms + ((recorded_ms - oldest_ms) / 16).max(CUT_MS)).min(spared_ms);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for group in Group::ALL {
            for resolution in Resolution::ALL {
                cut(&transaction, resolution, group, cut_ms)?;
            }
        }
        spans::forget(&transaction)?;
        transaction.commit()?;
        tracing::info!(target: HISTORY, bytes_max = keep.bytes_max, "old samples were deleted to make room");
    }
    let free = pragma(connection, "freelist_count")?;
    if free > FREE_PAGES_KEPT {
        let given = (free - FREE_PAGES_KEPT).min(FREE_PAGES_GIVEN);
        let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({given})"))?;
        let mut rows = vacuum.query([])?;
        while rows.next()?.is_some() {}
    }
    Ok(())
}

/// Returns the recorded time of the oldest sample in any table.
fn oldest(connection: &Connection) -> rusqlite::Result<Option<u64>> {
    let Some(first) = spans::all(connection)?.first().copied() else { return Ok(None) };
    let mut cut_ms = u64::MAX;
    for group in Group::ALL {
        for resolution in Resolution::ALL {
            cut_ms = cut_ms.min(spans::cut_at(connection, resolution, group)?);
        }
    }
    Ok(Some(cut_ms.max(first.recorded_ms)))
}

fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let pages = pragma(connection, "page_count")?.saturating_sub(pragma(connection, "freelist_count")?);
    Ok(pages.saturating_mul(pragma(connection, "page_size")?))
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<u64> {
    connection.pragma_query_value(None, name, |row| row.get(0)).map(from_sql)
}
