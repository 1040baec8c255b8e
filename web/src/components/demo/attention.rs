//! The attention map of a head.

use leptos::prelude::*;
use web_sys::PointerEvent;

use super::DemoContext;
use crate::{
    browser,
    components::dynamic::{part, words},
    state::{
        demo::{Demo, Map, visible},
        memo::memo,
    },
    text::{self, say, t},
};

/// Space for the names of rows, in cells.
const NAMES: f64 = 3.5;
/// Maximum number of characters of a row's name.
const NAME_CHARS: usize = 6;

/// The attention map with the choice of a layer and a head.
#[component]
pub fn Attention(
    /// The demo's state.
    desk: DemoContext,
) -> impl IntoView {
    let pointed = RwSignal::new(None);
    let maps = memo(move || desk.demo.with(|demo| demo.maps.clone()));
    let shape = memo(move || desk.demo.with(Demo::shape));
    let map = memo(move || Some(Map::of(&*maps.get()?, desk.head.get(), shape.get())));
    let caption = move || {
        let Some(map) = map.get() else { return t(text::DEMO_ATTENTION_NONE).to_owned() };
        let cell = pointed.get().and_then(|(row, column)| map.cell_words(row, column));
        let said = match cell {
            Some(cell) => say(&cell),
            None => {
                format!("{} {}", t(text::DEMO_ATTENTION_LEAD), say(&text::demo_map_tokens(map.tokens.len() as u64)))
            }
        };
        format!("{} {said}", say(&desk.head.get().text()))
    };
    view! {
        <section class="panel demo__attention" aria-label=t(text::DEMO_ATTENTION)>
            <h2 class="panel-title">{t(text::DEMO_ATTENTION)}</h2>
            {part(move || choices(desk, shape.get()))}
            {part(move || map.get().map(|map| picture(&map, pointed)))}
            <p class="demo__hint" data-testid="map-caption">{words(caption)}</p>
        </section>
    }
}

/// The choice of a layer and a head.
fn choices(desk: DemoContext, (n_layer, n_head): (usize, usize)) -> impl IntoView {
    let option = |index: usize| view! { <option value=index.to_string()>{index.to_string()}</option> };
    let layers: Vec<_> = (0..n_layer).map(option).collect();
    let heads: Vec<_> = (0..n_head).map(option).collect();
    let head = move || desk.head.get().head.map(|head| head.to_string()).unwrap_or_default();
    view! {
        <div class="demo__heads">
            <label class="field demo__head"><span class="field__label">{t(text::DEMO_LAYER)}</span>
                <select class="input" id="layer" prop:value=words(move || desk.head.get().layer.to_string())
                    on:change:target=move |event| {
                        let layer = event.target().value().parse().unwrap_or(0);
                        desk.head.update(|head| head.layer = layer);
                    }>{layers}</select>
            </label>
            <label class="field demo__head"><span class="field__label">{t(text::DEMO_HEAD)}</span>
                <select class="input" id="head" prop:value=words(head)
                    on:change:target=move |event| {
                        let index = event.target().value().parse().ok();
                        desk.head.update(|head| head.head = index);
                    }>{heads}<option value="">{t(text::DEMO_MEAN)}</option></select>
            </label>
        </div>
    }
}

/// The cells of a map, one path for each shade.
fn paths(map: &Map) -> Vec<impl IntoView + use<>> {
    let path = |(grade, d)| view! { <path class=format!("map__grade map__grade--{grade}") d=d /> };
    map.grades().into_iter().map(|grade| path((grade.grade, grade.path))).collect()
}

fn picture(map: &Map, pointed: RwSignal<Option<(usize, usize)>>) -> impl IntoView + use<> {
    let n = map.tokens.len();
    let paths = paths(map);
    let names: Vec<_> = map
        .tokens
        .iter()
        .enumerate()
        .map(|(row, token)| {
            let name: String = visible(token).chars().take(NAME_CHARS).collect();
            view! { <text class="map__name" x="-0.3" y=format!("{}.75", row)>{name}</text> }
        })
        .collect();
    let side = n as f64;
    let point = move |event: PointerEvent| {
        let cell = browser::place_within(&event).map(|(x, y)| {
            let (x, y) = (x * (side + NAMES) - NAMES, y * side);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the picture")]
            let cell = (x >= 0.0 && y >= 0.0).then_some((y as usize, x as usize));
            cell
        });
        pointed.set(cell.flatten());
    };
    view! {
        <svg class="map" data-testid="map" role="img" aria-label=t(text::DEMO_ATTENTION_LEAD)
            viewBox=format!("-{NAMES} 0 {} {side}", side + NAMES)
            on:pointermove=point on:pointerleave=move |_| pointed.set(None)>
            <path class="map__ground" d=format!("M0 0V{n}H{n}z") />
            {paths} {names}
        </svg>
    }
}
