//! The table of phases.

use headroom_planner::{memory::program::Phase, plan::basis::Certainty};
use leptos::prelude::*;

use super::dynamic::{flag, part_between, part_of, words};
use super::verdict::Mark;
use crate::{
    state::{
        course::{Drawable, PlanWithTimeline},
        format,
        memo::memo,
        shown::ShownPlan,
    },
    text::{self, t},
};

#[derive(Clone, PartialEq)]
struct Row {
    phase: Phase,
    bytes: [u64; 3],
    is_peak: bool,
    fails: bool,
}

#[derive(Clone, PartialEq)]
struct Table {
    rows: Vec<Row>,
    certainty: [Certainty; 2],
    fits: bool,
}

fn table<R: Drawable>(planned: &PlanWithTimeline<R>) -> Table {
    let plan = &planned.plan;
    let rows = plan.phases.iter().map(|peak| Row {
        phase: peak.phase,
        bytes: [peak.live_bytes, peak.max_allocated_bytes, peak.max_reserved_bytes],
        is_peak: plan.peak.phase == peak.phase,
        fails: plan.oom.as_ref().is_some_and(|oom| oom.phase == peak.phase),
    });
    Table { rows: rows.collect(), certainty: [plan.basis.allocated, plan.basis.reserved], fits: plan.fits }
}

/// The table of phases.
#[component]
pub fn PhaseTable<R: Drawable>(
    /// The drawn plan.
    shown: ShownPlan<R>,
) -> impl IntoView {
    let stale = shown.is_stale;
    let table = memo(move || shown.with(table));
    let title = move || {
        let fits = table.with(|table| table.as_ref().map(|table| table.fits));
        let title = t(if fits == Some(false) { text::PHASES_WOULD_NEED } else { text::PHASES });
        format::marked_previous(title.to_owned(), stale.get() && fits.is_some())
    };
    let mark = move |index: usize| {
        part_of(
            move || table.with(|table| table.as_ref().map(|table| table.certainty[index])),
            |certainty| certainty.map(|certainty| view! { <Mark certainty /> }),
        )
    };
    view! {
        <section class="phases" class:stale=flag(move || stale.get()) aria-labelledby="phases-title"
            aria-busy=words(move || shown.is_sliding.get().to_string())>
            <h2 class="panel-title" id="phases-title">{words(title)}</h2>
            <div class="phases__scroll" tabindex="0" role="group" aria-labelledby="phases-title">
                <table class="phases__table" id="phases" data-testid="phases">
                    <thead>
                        <tr>
                            <th scope="col">{t(text::PHASE)}</th>
                            <th scope="col">{t(text::LIVE_PEAK)}{mark(0)}</th>
                            <th scope="col" title=t(text::FIGURE_ALLOCATED_HINT)>{t(text::FIGURE_ALLOCATED)}{mark(0)}</th>
                            <th scope="col" title=t(text::FIGURE_RESERVED_HINT)>{t(text::FIGURE_RESERVED)}{mark(1)}</th>
                        </tr>
                    </thead>
                    <tbody>
                        {part_between(shown.is_sliding, move || {
                            table.get().map(|table| table.rows.iter().map(row).collect::<Vec<_>>())
                        })}
                    </tbody>
                </table>
            </div>
        </section>
    }
}

fn row(row: &Row) -> impl IntoView + use<> {
    let badge = if row.fails {
        Some(view! { <span class="phases__badge phases__badge--fails">{t(text::FAILS)}</span> })
    } else if row.is_peak {
        Some(view! { <span class="phases__badge">{t(text::PEAK)}</span> })
    } else {
        None
    };
    view! {
        <tr data-phase=row.phase.name() class:phases__row--marked=row.fails || row.is_peak>
            <th scope="row">{t(row.phase.text())} {badge}</th>
            {row.bytes.map(|bytes| view! {
                <td title=format::exact_bytes(bytes) data-bytes=bytes.to_string()>{format::size(bytes)}</td>
            }).collect_view()}
        </tr>
    }
}
