//! What the owner wants to be told of, what energy costs, and whether this browser tells.

use headroom_shared::protocol::Scope;
use leptos::{prelude::*, task::spawn_local};

use super::{Ask, Desk, Kept};
use crate::{
    browser::rig::{Notify, ask_to_notify, notify_state, stop_notifying},
    components::dynamic::{part, some_words},
    state::rig::{
        alerts::{Kind, write_price},
        words as said,
    },
    text::{self, say, t},
};

/// Alerts that are on, above everything else.
#[component]
pub fn Fired(
    /// The page.
    desk: Desk,
) -> impl IntoView {
    let fired = Memo::new(move |_| {
        desk.events(|rig| {
            let line = |fired: &crate::state::rig::Fired| {
                let of = match (&fired.gpu, &fired.run) {
                    (Some(gpu), _) => said::card_name(rig, gpu),
                    (None, Some(run)) => said::run_name(rig, run),
                    (None, None) => String::new(),
                };
                (of, say(&said::alert(&fired.alert)), fired.time_ms)
            };
            rig.fired.iter().map(line).collect::<Vec<_>>()
        })
    });
    part(move || {
        let fired = fired.get();
        (!fired.is_empty()).then(|| {
            let lines: Vec<_> = fired
                .into_iter()
                .map(|(of, words, time_ms)| {
                    let since = say(&text::rig_since(crate::browser::rig::moment(time_ms, true)));
                    view! { <li><strong>{of}</strong> " " {words} " · " {since}</li> }
                })
                .collect();
            view! { <ul class="rig__alerts" role="alert" aria-label=t(text::RIG_ALERT_ON) data-testid="fired">{lines}</ul> }
        })
    })
}

/// The form.
#[component]
pub fn Alerts(
    /// The page.
    desk: Desk,
) -> impl IntoView {
    let may_change = Memo::new(move |_| desk.about(|rig| rig.scope == Some(Scope::Control)));
    // Made anew where other settings were fetched, and not while a person types.
    let fetched = Memo::new(move |_| desk.kept.with(|kept| matches!(kept, Kept::Unknown | Kept::NotFetched(_))));
    view! {
        <section class="panel alerts" aria-labelledby="alerts-title" data-testid="alerts">
            <h2 class="panel-title" id="alerts-title">{t(text::RIG_ALERTS)}</h2>
            <p class="rig__hint">{t(text::RIG_ALERTS_LEAD)}</p>
            {part(move || {
                let waits = fetched.get();
                form(desk, !may_change.get() || waits)
            })}
            {part(move || {
                may_change.get().then_some(()).is_none().then(|| view! { <p class="rig__hint">{t(text::RIG_MAY_VIEW)}</p> })
            })}
            <Browser />
        </section>
    }
}

fn form(desk: Desk, is_closed: bool) -> impl IntoView {
    let settings = desk.settings.get_untracked();
    let draft = RwSignal::new(settings.clone());
    let price = RwSignal::new(settings.price_per_kwh.map(headroom_shared::decimal::shortest).unwrap_or_default());
    let currency = RwSignal::new(settings.currency.clone());
    let price_fault = RwSignal::new(false);
    let save = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        let mut settings = draft.get_untracked();
        let is_price = write_price(&mut settings, &price.get_untracked(), &currency.get_untracked());
        price_fault.set(!is_price);
        if is_price {
            desk.ask.run(Ask::Save(settings));
        }
    };
    let rules: Vec<_> = Kind::ALL.into_iter().map(|kind| rule(kind, draft, is_closed)).collect();
    let said = move || {
        desk.kept.with(|kept| match kept {
            Kept::Unknown | Kept::Fetched => None,
            Kept::Saved => Some(t(text::RIG_SAVED).to_owned()),
            Kept::NotFetched(message) => Some(say(&text::rig_settings_failed(message.as_str()))),
            Kept::NotSaved(message) => Some(say(&text::rig_not_saved(message.as_str()))),
        })
    };
    view! {
        <form class="alerts__form" on:submit=save novalidate>
            {rules}
            <div class="alerts__price">
                <label for="price">{t(text::RIG_PRICE)}</label>
                <input class="input alerts__number" id="price" inputmode="decimal" autocomplete="off" maxlength="12" disabled=is_closed value=price.get_untracked()
                    aria-invalid=some_words(move || price_fault.get().then(|| "true".to_owned())) aria-describedby="price-fault"
                    on:input:target=move |event| price.set(event.target().value()) />
                <label class="visually-hidden" for="currency">{t(text::RIG_CURRENCY)}</label>
                <input class="input alerts__number" id="currency" autocomplete="off" maxlength="8" placeholder="€" disabled=is_closed value=currency.get_untracked()
                    on:input:target=move |event| currency.set(event.target().value()) />
            </div>
            <p class="rig__fault" id="price-fault">{some_words(move || price_fault.get().then(|| t(text::RIG_PRICE_WRONG).to_owned()))}</p>
            <p class="alerts__buttons">
                <button type="submit" class="button button--primary" id="save" disabled=is_closed>{t(text::RIG_SAVE)}</button>
                <span role="status" data-testid="kept">{some_words(said)}</span>
            </p>
        </form>
    }
}

fn rule(kind: Kind, draft: RwSignal<headroom_shared::protocol::alert::Settings>, is_closed: bool) -> impl IntoView {
    let (is_on, number) = draft.with_untracked(|settings| kind.read(settings));
    let number = RwSignal::new(number);
    let on = RwSignal::new(is_on);
    let write = move || {
        draft.update(|settings| kind.write(settings, on.get_untracked(), number.get_untracked()));
    };
    let id = format!("rule-{kind:?}").to_lowercase();
    let field = kind.number().map(|(unit, [_, least, most])| {
        view! {
            <input class="input alerts__number" type="number" inputmode="numeric" min=least.to_string() max=most.to_string() id=format!("{id}-number")
                value=number.get_untracked().to_string() aria-label=t(kind.name()) disabled=is_closed
                on:change:target=move |event| {
                    if let Ok(typed) = event.target().value().trim().parse::<u64>() {
                        number.set(typed.clamp(least, most));
                    }
                    event.target().set_value(&number.get_untracked().to_string());
                    write();
                } />
            <span>{unit}</span>
        }
    });
    view! {
        <div class="alerts__rule">
            <label class="alerts__name">
                <input type="checkbox" id=id checked=is_on disabled=is_closed
                    on:change:target=move |event| { on.set(event.target().checked()); write(); } />
                {t(kind.name())}
            </label>
            {field}
        </div>
    }
}

/// Whether this browser tells, and how to change that.
#[component]
fn Browser() -> impl IntoView {
    let state = RwSignal::new(notify_state());
    let press = move |_| {
        if state.get_untracked() == Notify::On {
            stop_notifying();
            state.set(notify_state());
        } else {
            spawn_local(async move { state.set(ask_to_notify().await) });
        }
    };
    let words = move || {
        let words = match state.get() {
            Notify::On => text::RIG_NOTIFY_ON,
            Notify::Denied => text::RIG_NOTIFY_DENIED,
            Notify::Never => text::RIG_NOTIFY_INSECURE,
            Notify::Off => return None,
        };
        Some(t(words).to_owned())
    };
    let can = Memo::new(move |_| matches!(state.get(), Notify::On | Notify::Off));
    let label =
        move || Some(t(if state.get() == Notify::On { text::RIG_NOTIFY_STOP } else { text::RIG_NOTIFY }).to_owned());
    view! {
        <div class="alerts__browser" data-testid="notify">
            {part(move || can.get().then(|| view! {
                <button type="button" class="button" id="notify" on:click=press>{some_words(label)}</button>
            }))}
            <p class="rig__hint" role="status">{some_words(words)}</p>
        </div>
    }
}
