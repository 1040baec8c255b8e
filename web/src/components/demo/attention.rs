//! The attention map of a layer and head.

use headroom_protocol::demo::{Head, Map};
use leptos::prelude::*;
use web_sys::PointerEvent;

use super::DemoContext;
use crate::{
    browser,
    components::dynamic::{part, words},
    state::{
        demo::{cell_words, grades, share, visible},
        memo::memo,
    },
    text::{self, Key, say, t},
};

/// Space for the names of rows, in cells.
const NAMES: f64 = 3.5;
/// Maximum number of characters of a row's name.
const NAME_CHARS: usize = 6;

/// The attention map with the choice of layer and head.
#[component]
pub fn Attention(
    /// The demo's state.
    desk: DemoContext,
) -> impl IntoView {
    let pointed = RwSignal::new(None);
    let map = memo(move || desk.demo.with(|demo| demo.map.clone()));
    let shape = memo(move || {
        desk.demo.with(|demo| demo.opened.as_ref().map_or((1, 1), |opened| (opened.n_layer, opened.n_head)))
    });
    let caption = move || {
        let Some(map) = map.get() else { return t(text::DEMO_ATTENTION_NONE).to_owned() };
        let cell = pointed.get().and_then(|(row, column)| cell_words(&map, row, column));
        let said = cell
            .map(|words| say(&words))
            .or_else(|| earlier(&map))
            .unwrap_or_else(|| t(text::DEMO_ATTENTION_LEAD).to_owned());
        format!("{} {said}", say(&text::demo_map_of(map.head.layer, map.head.head)))
    };
    view! {
        <section class="panel demo__attention" aria-label=t(text::DEMO_ATTENTION)>
            <h2 class="panel-title">{t(text::DEMO_ATTENTION)}</h2>
            <div class="demo__heads">
                {part(move || {
                    let (n_layer, n_head) = shape.get();
                    view! {
                        {choice(desk, "layer", text::DEMO_LAYER, n_layer, |head| head.layer, |head, layer| Head { layer, ..head })}
                        {choice(desk, "head", text::DEMO_HEAD, n_head, |head| head.head, |head, of| Head { head: of, ..head })}
                    }
                })}
            </div>
            {part(move || map.get().map(|map| picture(&map, pointed)))}
            <p class="demo__hint" data-testid="map-caption">{words(caption)}</p>
        </section>
    }
}

fn earlier(map: &Map) -> Option<String> {
    let most = map.earlier.iter().copied().max().filter(|most| *most > 0)?;
    Some(format!("{} {}", t(text::DEMO_ATTENTION_LEAD), say(&text::demo_earlier(share(most)))))
}

fn choice(
    desk: DemoContext,
    id: &'static str,
    label: Key,
    n: u64,
    read: fn(&Head) -> u64,
    with: fn(Head, u64) -> Head,
) -> impl IntoView {
    let options: Vec<_> =
        (0..n).map(|index| view! { <option value=index.to_string()>{index.to_string()}</option> }).collect();
    view! {
        <label class="field demo__head"><span class="field__label">{t(label)}</span>
            <select class="input" id=id prop:value=words(move || desk.head.with(read).to_string())
                on:change:target=move |event| {
                    if let Ok(chosen) = event.target().value().parse() {
                        desk.look(with(desk.head.get_untracked(), chosen));
                    }
                }>{options}</select>
        </label>
    }
}

fn picture(map: &Map, pointed: RwSignal<Option<(usize, usize)>>) -> impl IntoView + use<> {
    let n = map.tokens.len();
    let paths: Vec<_> = grades(map)
        .into_iter()
        .map(|grade| view! { <path class=format!("map__grade map__grade--{}", grade.grade) d=grade.path /> })
        .collect();
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
