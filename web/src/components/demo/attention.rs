//! The attention of each head: maps of all heads, and a large map of the selected one.

use std::sync::Arc;

use headroom_protocol::demo::Maps;
use leptos::prelude::*;
use web_sys::PointerEvent;

use super::DemoContext;
use crate::{
    browser,
    components::dynamic::{flag, part, part_of, words},
    state::{
        demo::{Demo, Head, Map, visible},
        memo::memo,
    },
    text::{self, say, t},
};

/// Space for the names of rows, in cells.
const NAMES: f64 = 3.5;
/// Maximum number of characters of a row's name.
const NAME_CHARS: usize = 6;

/// The maps of all heads with the choice of a head, and its large map.
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
            {part(move || maps.with(Option::is_some).then(|| all_heads(desk, maps, shape)))}
            {part(move || map.get().map(|map| picture(&map, pointed)))}
            <p class="demo__hint" data-testid="map-caption">{words(caption)}</p>
        </section>
    }
}

/// The choice of a layer and a head, which needs no maps.
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

/// A small map of each head, one row per layer. They are radio buttons: the arrow keys select the next head.
fn all_heads(desk: DemoContext, maps: Memo<Option<Arc<Maps>>>, shape: Memo<(usize, usize)>) -> impl IntoView {
    let (n_layer, n_head) = shape.get();
    let columns: Vec<_> =
        (0..n_head).map(|head| view! { <span class="heads__name">{head.to_string()}</span> }).collect();
    let rows: Vec<_> = (0..n_layer)
        .map(|layer| {
            let heads: Vec<_> = (0..n_head).map(|head| small(desk, maps, shape, layer, head)).collect();
            view! {
                <div class="heads__row">
                    <span class="heads__name" aria-hidden="true">{format!("{} {layer}", t(text::DEMO_LAYER))}</span>
                    {heads}
                </div>
            }
        })
        .collect();
    view! {
        <fieldset class="heads" data-testid="heads">
            <legend class="field__label">{t(text::DEMO_HEADS)}</legend>
            <div class="heads__row" aria-hidden="true"><span class="heads__name">{t(text::DEMO_HEAD)}</span> {columns}</div>
            {rows}
        </fieldset>
    }
}

fn small(
    desk: DemoContext,
    maps: Memo<Option<Arc<Maps>>>,
    shape: Memo<(usize, usize)>,
    layer: usize,
    index: usize,
) -> impl IntoView {
    let head = Head { layer, head: Some(index) };
    let map = move || maps.with(|maps| Some(Map::of(maps.as_deref()?, head, shape.get())));
    let side = move || maps.with(|maps| maps.as_ref().map_or(0, |maps| maps.tokens.len()));
    view! {
        <label class="heads__head">
            <input type="radio" class="visually-hidden" name="attention-head" aria-label=say(&head.text())
                prop:checked=flag(move || desk.head.get() == head) on:change=move |_| desk.head.set(head) />
            <svg class="heads__map" aria-hidden="true" viewBox=words(move || { let side = side(); format!("0 0 {side} {side}") })>
                {part_of(map, |map| map.map(|map| paths(&map)))}
            </svg>
        </label>
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
            view! { <text class="map__name" x="-0.3" y=format!("{}.75", row)>{name}<title>{format!("{token:?}")}</title></text> }
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
