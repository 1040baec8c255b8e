//! The model's buffers: planned memory compared with allocated memory.

use headroom_protocol::demo::TensorSummary;
use leptos::prelude::*;

use super::DemoContext;
use crate::{
    components::dynamic::part,
    state::{
        demo::{BarSegment, bands, totals},
        format,
        memo::memo,
    },
    text::{self, Key, say, t},
};

/// The bars and the list of buffers.
#[component]
pub fn Memory(
    /// The demo's state.
    desk: DemoContext,
) -> impl IntoView {
    let tensors = memo(move || desk.demo.with(|demo| demo.ready.as_ref().map(|ready| ready.tensors.clone())));
    view! {
        <section class="panel demo__memory" aria-label=t(text::DEMO_MEMORY)>
            <h2 class="panel-title">{t(text::DEMO_MEMORY)}</h2>
            {part(move || match tensors.get() {
                Some(tensors) => bars(&tensors).into_any(),
                None => view! { <p class="demo__hint">{t(text::DEMO_MEMORY_NONE)}</p> }.into_any(),
            })}
        </section>
    }
}

fn bars(tensors: &[TensorSummary]) -> impl IntoView + use<> {
    let (planned, allocated) = totals(tensors);
    let scale = planned.max(allocated);
    let legend: Vec<_> = bands(tensors, |tensor| tensor.allocated_bytes, scale)
        .into_iter()
        .map(|band| {
            view! {
                <li>
                    <svg class="demo__key" viewBox="0 0 10 10" aria-hidden="true"><rect class=band.band width="10" height="10" /></svg>
                    {band.said}
                </li>
            }
        })
        .collect();
    let said = match planned == allocated {
        true => say(&text::demo_equal(format::grouped(allocated))),
        false => say(&text::demo_unequal(format::grouped(allocated), format::grouped(planned))),
    };
    let rows: Vec<_> = tensors
        .iter()
        .map(|tensor| {
            let times = if tensor.n > 1 { format!(" × {}", tensor.n) } else { String::new() };
            view! {
                <tr>
                    <th scope="row"><code>{tensor.name.clone()}</code> {times}</th>
                    <td>{format::grouped(tensor.planned_bytes)}</td>
                    <td>{format::grouped(tensor.allocated_bytes)}</td>
                </tr>
            }
        })
        .collect();
    view! {
        {bar(text::DEMO_PLANNED, planned, bands(tensors, |tensor| tensor.planned_bytes, scale))}
        {bar(text::DEMO_ALLOCATED, allocated, bands(tensors, |tensor| tensor.allocated_bytes, scale))}
        <ul class="demo__legend">{legend}</ul>
        <p class="demo__equal" class=("demo__equal--not", planned != allocated) data-testid="equal">{said}</p>
        <details class="demo__tensors">
            <summary>{t(text::DEMO_TENSORS)}</summary>
            <table data-testid="tensors">
                <thead><tr>
                    <th scope="col"><span class="visually-hidden">{t(text::DEMO_TENSORS)}</span></th>
                    <th scope="col">{t(text::DEMO_PLANNED)}</th>
                    <th scope="col">{t(text::DEMO_ALLOCATED)}</th>
                </tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </details>
    }
}

fn bar(label: Key, bytes: u64, bands: Vec<BarSegment>) -> impl IntoView {
    let said = format!("{} {}", t(label), format::size(bytes));
    let rects: Vec<_> = bands
        .into_iter()
        .map(|band| view! { <rect class=band.band x=band.start width=band.width y="0" height="10"><title>{band.said}</title></rect> })
        .collect();
    view! {
        <p class="demo__bar-label"><span>{t(label)}</span> <span>{format::size(bytes)}</span></p>
        <svg class="demo__bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label=said>{rects}</svg>
    }
}
