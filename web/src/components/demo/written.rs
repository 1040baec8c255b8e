//! The text as it is generated. Each token is an element that can be selected.

use headroom_protocol::demo::{End, Token};
use leptos::{ev::KeyboardEvent, html::Div, prelude::*};
use web_sys::PointerEvent;

use super::DemoContext;
use crate::{
    browser::tokens,
    components::dynamic::{part, words},
    state::{
        demo::{Attended, Demo},
        memo::memo,
    },
    text::{self, say, t},
};

/// The text and the line about its backend.
#[component]
pub fn Written(
    /// The demo's state.
    desk: DemoContext,
) -> impl IntoView {
    let node = NodeRef::<Div>::new();
    // Existing elements stay. Recreating a text of two thousand tokens sixty times per second would be too slow.
    Effect::new(move |shown: Option<(u32, usize)>| {
        let Some(element) = node.get() else { return (0, 0) };
        desk.demo.with(|demo| {
            let shown = shown.filter(|(text, _)| *text == demo.n_texts).map_or(0, |(_, n)| n);
            if shown == 0 {
                element.set_text_content(None);
            }
            let follows = tokens::is_at_end(&element);
            for (index, piece) in demo.pieces.iter().enumerate().skip(shown) {
                let class = piece.token.as_ref().map_or("token token--given", class);
                tokens::append_span(&element, &piece.words, class, index);
            }
            if follows {
                element.set_scroll_top(element.scroll_height());
            }
            (demo.n_texts, demo.pieces.len())
        })
    });
    Effect::new(move |_| {
        let looked_at = desk.looked_at();
        if let Some(element) = node.get() {
            tokens::mark_child(&element, looked_at);
        }
    });
    let attended = memo(move || {
        let chosen = desk.chosen.get()?;
        desk.demo.with(|demo| demo.attended(chosen, desk.head.get()))
    });
    Effect::new(move |_| {
        if let Some(element) = node.get() {
            attended.with(|attended| {
                let (first, grades) = attended.as_ref().map_or((0, Vec::new()), |found| (found.first, found.grades()));
                tokens::shade_children(&element, first, &grades);
            });
        }
    });
    let cut = memo(move || desk.demo.with(Demo::cut));
    let beyond = memo(move || desk.demo.with(Demo::beyond_context));
    let none = memo(move || desk.demo.with(|demo| demo.pieces.is_empty()));
    view! {
        <section class="panel demo__text" aria-label=t(text::DEMO_TEXT)>
            <h2 class="panel-title">{t(text::DEMO_TEXT)}
                <span class="demo__rate" data-testid="rate">{words(move || desk.demo.with(rate))}</span></h2>
            {part(move || none.get().then(|| view! { <p class="demo__hint">{t(text::DEMO_TEXT_EMPTY)}</p> }))}
            {part(move || cut.get().map(|text| view! { <p class="demo__hint" role="status" data-testid="cut">{say(&text)}</p> }))}
            {part(move || beyond.get().map(|text| view! { <p class="demo__hint" data-testid="beyond">{say(&text)}</p> }))}
            // A screen reader announces the text when it ends, and not every token. It announces what a token attends to.
            <div class="demo__tokens" class=("demo__tokens--shaded", move || attended.with(Option::is_some))
                id="tokens" data-testid="tokens" role="group" tabindex="0" aria-label=t(text::DEMO_TEXT) node_ref=node
                on:pointerover=move |event: PointerEvent| desk.pointed.set(index_of(&event))
                on:pointerleave=move |_| desk.pointed.set(None)
                on:click=move |event| {
                    let token = tokens::index_at(event.target());
                    desk.choose(token.filter(|_| desk.chosen.get_untracked() != token));
                }
                on:keydown=move |event: KeyboardEvent| walk(desk, &event)></div>
            <p class="demo__attended" role="status" data-testid="attended">
                {words(move || attended.with(|attended| attended.as_ref().map(|attended| said(desk, attended)).unwrap_or_default()))}</p>
            <p class="demo__hint" role="status" data-testid="ended">{words(move || desk.demo.with(ended))}</p>
        </section>
    }
}

fn index_of(event: &PointerEvent) -> Option<usize> {
    tokens::index_at(event.target())
}

fn rate(demo: &Demo) -> String {
    demo.rate().map(|rate| say(&text::demo_rate(rate))).unwrap_or_default()
}

/// Describes what a token attends to.
fn said(desk: DemoContext, attended: &Attended) -> String {
    let head = desk.head.get();
    desk.demo.with_untracked(|demo| attended.words(demo, head)).map(|words| say(&words)).unwrap_or_default()
}

fn ended(demo: &Demo) -> String {
    let n = || text::count(u64::from(demo.pace.0));
    match demo.end {
        Some(End::Length) => format!("{} {}", say(&text::demo_ended(n())), t(text::DEMO_TEXT_HINT)),
        Some(End::Stopped) => format!("{} {}", say(&text::demo_stopped(n())), t(text::DEMO_TEXT_HINT)),
        None => String::new(),
    }
}

/// Returns the CSS class of a token: tinted by how improbable the token was.
fn class(token: &Token) -> &'static str {
    let chosen = token.candidates.iter().find(|(id, ..)| *id == token.id);
    match chosen.map_or(0, |(_, _, millionths)| *millionths) {
        500_000.. => "token",
        200_000.. => "token token--1",
        50_000.. => "token token--2",
        _ => "token token--3",
    }
}

/// Moves the selection with the arrow keys from token to token. Escape clears it.
fn walk(desk: DemoContext, event: &KeyboardEvent) {
    let at = desk.looked_at_untracked();
    let Some(last) = desk.demo.with_untracked(|demo| demo.pieces.len().checked_sub(1)) else { return };
    let to = match event.key().as_str() {
        "ArrowLeft" | "ArrowUp" => Some(at.map_or(last, |at| at.saturating_sub(1))),
        "ArrowRight" | "ArrowDown" => Some(at.map_or(last, |at| (at + 1).min(last))),
        "Home" => Some(0),
        "End" => Some(last),
        "Escape" => None,
        _ => return,
    };
    event.prevent_default();
    desk.pointed.set(None);
    desk.choose(to);
}

impl DemoContext {
    /// Returns the index of the token whose candidates are shown.
    pub fn looked_at(self) -> Option<usize> {
        let selected = self.pointed.get().or(self.chosen.get());
        self.demo.with(|demo| demo.looked_at(selected))
    }

    fn looked_at_untracked(self) -> Option<usize> {
        untrack(move || self.looked_at())
    }
}
