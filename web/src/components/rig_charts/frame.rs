//! What charts have in common: where they are pointed at, levels at their side, and words over them.

use headroom_shared::decimal;
use leptos::{html::Div, prelude::*};
use web_sys::{MouseEvent, PointerEvent};

use crate::components::dynamic::{flag, part, words};

/// A share as a length of a style.
pub fn percent(share: f64) -> String {
    decimal::fixed(share * 100.0, 3) + "%"
}

/// A share as a whole number of percent, for who hears where the cursor is. The standard library's way to write a float
/// would come into the page for this alone, with twenty kilobytes.
pub fn whole_percent(share: f64) -> String {
    decimal::fixed(share * 100.0, 0)
}

/// Where in a plot an event is, as a share of its width.
pub fn share_at(plot: NodeRef<Div>, event: &MouseEvent) -> Option<f64> {
    let around = plot.get_untracked()?.get_bounding_client_rect();
    Some(((f64::from(event.client_x()) - around.left()) / around.width().max(1.0)).clamp(0.0, 1.0))
}

/// How wide a plot is; nothing where it is not laid out.
pub fn width_of(plot: NodeRef<Div>) -> f64 {
    plot.get_untracked().map_or(0.0, |plot| f64::from(plot.client_width()))
}

/// Whether a pointer goes away without having been lifted, as a mouse does.
pub fn is_mouse(event: &PointerEvent) -> bool {
    event.pointer_type() == "mouse"
}

/// Levels of the upright axis, at its side.
#[component]
pub fn Levels(
    /// Share of the height from the top, and what stands there.
    #[prop(into)]
    levels: Signal<Vec<(f64, String)>>,
) -> impl IntoView {
    view! {
        <div class="rig-chart__levels" aria-hidden="true">
            {part(move || levels.get().into_iter().map(|(y, label)| view! {
                <span class="rig-chart__level" style:top=percent(y)>{label}</span>
            }).collect_view())}
        </div>
    }
}

/// Ticks below: share of the width, what stands there, and whether it stands out.
#[component]
pub fn Ticks(
    /// The ticks.
    #[prop(into)]
    ticks: Signal<Vec<(f64, String, bool)>>,
) -> impl IntoView {
    view! {
        <div class="rig-chart__ticks" aria-hidden="true">
            {part(move || ticks.get().into_iter().map(|(x, label, is_date)| view! {
                <span class="rig-chart__tick" class:rig-chart__tick--date=is_date
                    class:rig-chart__tick--first={x < 0.04} class:rig-chart__tick--last={x > 0.96}
                    style:left=percent(x)>{label}</span>
            }).collect_view())}
        </div>
    }
}

/// Lines at levels and ticks, in units of the drawing.
pub fn grid(ys: &[f64], xs: &[f64]) -> String {
    use crate::state::rig_charts::path::{HEIGHT, Path, WIDTH, stroke, units_x, units_y};
    let mut path = Path::default();
    for y in ys {
        stroke(&mut path, &[(0, units_y(*y)), (WIDTH, units_y(*y))]);
    }
    for x in xs {
        stroke(&mut path, &[(units_x(*x), 0), (units_x(*x), HEIGHT)]);
    }
    path.text()
}

/// The cursor's line.
#[component]
pub fn Cursor(
    /// Where it is; nothing where there is none.
    #[prop(into)]
    at: Signal<Option<f64>>,
) -> impl IntoView {
    view! {
        <div class="rig-chart__cursor" class:rig-chart__cursor--off=flag(move || at.get().is_none())
            style:left=words(move || percent(at.get().unwrap_or(0.0)))></div>
    }
}
