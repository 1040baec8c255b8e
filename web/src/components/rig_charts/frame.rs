//! Shared parts of charts: pointer position, axes, and the cursor.

use headroom_text::decimal;
use leptos::{html::Div, prelude::*};
use web_sys::{MouseEvent, PointerEvent};

use crate::components::dynamic::{flag, part, words};

/// Formats a fraction as a CSS percentage.
pub fn percent(share: f64) -> String {
    decimal::fixed(share * 100.0, 3) + "%"
}

/// Formats a fraction as a whole percentage, for screen readers. The standard library's float formatting would add
/// twenty kilobytes to the page for this alone.
pub fn whole_percent(share: f64) -> String {
    decimal::fixed(share * 100.0, 0)
}

/// Returns the position of an event in a plot as a fraction of its width.
pub fn share_at(plot: NodeRef<Div>, event: &MouseEvent) -> Option<f64> {
    let around = plot.get_untracked()?.get_bounding_client_rect();
    Some(((f64::from(event.client_x()) - around.left()) / around.width().max(1.0)).clamp(0.0, 1.0))
}

/// Returns the width of a plot in pixels, or 0 if it is not laid out.
pub fn width_of(plot: NodeRef<Div>) -> f64 {
    plot.get_untracked().map_or(0.0, |plot| f64::from(plot.client_width()))
}

/// Reports whether a pointer can leave without being lifted, as a mouse does.
pub fn is_mouse(event: &PointerEvent) -> bool {
    event.pointer_type() == "mouse"
}

/// Labels of the vertical axis.
#[component]
pub fn Levels(
    /// Each label's distance from the top as a fraction of the height, and its text.
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

/// Labels of the horizontal axis: position as a fraction of the width, text, and whether the label is emphasised.
#[component]
pub fn Ticks(
    /// The labels.
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

/// Returns the path of the grid lines at `ys` and `xs`, in drawing units.
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
    /// The cursor's position as a fraction of the width; `None` hides it.
    #[prop(into)]
    at: Signal<Option<f64>>,
) -> impl IntoView {
    view! {
        <div class="rig-chart__cursor" class:rig-chart__cursor--off=flag(move || at.get().is_none())
            style:left=words(move || percent(at.get().unwrap_or(0.0)))></div>
    }
}
