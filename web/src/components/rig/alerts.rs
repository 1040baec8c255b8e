//! The alert rules, the price of energy, and the browser's notifications.

use leptos::{prelude::*, task::spawn_local};

use super::{PageRequest, RigContext, SettingsState};
use crate::{
    browser::rig::{NotificationState, ask_to_notify, keep_focus, notify_state, stop_notifying},
    components::{
        dynamic::{part_of, some_words},
        rig_charts::ZONE,
    },
    state::rig::{
        alerts::{AlertSettingsForm, Kind, Rule},
        messages, names,
    },
    text::{self, say, t},
};

/// Alerts that are firing, above everything else.
#[component]
pub fn Fired(
    /// The page's state.
    desk: RigContext,
) -> impl IntoView {
    let may_change = desk.may_change;
    let fired = move || {
        desk.events(|rig| {
            let line = |fired: &headroom_protocol::alert::FiredAlert| {
                let of = match (&fired.gpu, &fired.run) {
                    (Some(gpu), _) => names::gpu_name(rig, gpu),
                    (None, Some(run)) => names::run_name(rig, run),
                    (None, None) => String::new(),
                };
                (of, messages::fired(rig, fired), fired.time_ms, fired.event)
            };
            rig.fired.iter().map(line).collect::<Vec<_>>()
        })
    };
    part_of(
        move || (fired(), may_change.get()),
        move |(fired, may_change)| {
            keep_focus("dismiss-", ".rig__alerts button");
            (!fired.is_empty()).then(|| {
            let lines: Vec<_> = fired
                .into_iter()
                .map(|(of, words, time_ms, event)| {
                    let since = say(&text::rig_since(ZONE.moment(time_ms, false)));
                    let dismiss = format!("{}: {of} {words}", t(text::RIG_DISMISS));
                    // While history is paused, an alert has no event id by which it could be dismissed.
                    let button = (may_change && event != 0).then(|| view! {
                        <button type="button" class="button button--quiet" id=format!("dismiss-{event}") aria-label=dismiss
                            on:click=move |_| desk.ask.run(PageRequest::Dismiss(event))>{t(text::RIG_DISMISS)}</button>
                    });
                    view! { <li><span><strong>{of}</strong> " " {words} " · " {since}</span> {button}</li> }
                })
                .collect();
            view! {
                <div class="rig__alerts" role="alert" data-testid="fired">
                    <ul aria-label=t(text::RIG_ALERT_ON)>{lines}</ul>
                    <p class="rig__fault">{some_words(move || Some(desk.not_dismissed.get()))}</p>
                </div>
            }
        })
        },
    )
}

/// The form of alert settings.
#[component]
pub fn Alerts(
    /// The page's state.
    desk: RigContext,
) -> impl IntoView {
    let may_change = desk.may_change;
    let waits = move || desk.kept.with(|kept| matches!(kept, SettingsState::Unknown | SettingsState::NotFetched(_)));
    // Rebuilt when other settings fill the form, and not while the user types.
    let filled = move || (desk.form.with(|form| form.n_fills), !may_change.get() || waits());
    view! {
        <section class="panel alerts" aria-labelledby="alerts-title" data-testid="alerts">
            <h2 class="panel-title" id="alerts-title">{t(text::RIG_ALERTS)}</h2>
            <p class="rig__hint">{t(text::RIG_ALERTS_LEAD)}</p>
            {part_of(filled, move |(_, is_closed)| form(desk, is_closed))}
            {part_of(move || may_change.get(), |may_change| {
                (!may_change).then(|| view! { <p class="rig__hint">{t(text::RIG_MAY_VIEW)}</p> })
            })}
            <Browser />
        </section>
    }
}

fn form(desk: RigContext, is_closed: bool) -> impl IntoView {
    let price_fault = RwSignal::new(false);
    let try_save = move || {
        let is_made = desk.form.with_untracked(|form| form.made().is_some());
        price_fault.set(!is_made);
        if is_made {
            desk.ask.run(PageRequest::Save);
        }
    };
    let save = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        // After a conflicting change on another device, the user has to choose first.
        if !desk.form.with_untracked(AlertSettingsForm::has_conflict) {
            try_save();
        }
    };
    let shape = move || desk.form.with(|form| form.rules.iter().map(|rule| rule.id).collect::<Vec<_>>());
    let rules = part_of(shape, move |_| {
        keep_focus("rule-", "#save");
        Kind::ALL.map(|kind| kind_of_rule(kind, desk.form, is_closed)).into_iter().collect::<Vec<_>>()
    });
    let said = move || {
        desk.kept.with(|kept| match kept {
            SettingsState::Unknown | SettingsState::Fetched => None,
            SettingsState::Saved => Some(t(text::RIG_SAVED).to_owned()),
            SettingsState::NotFetched(message) => Some(say(&text::rig_settings_failed(message.as_str()))),
            SettingsState::NotSaved(message) => Some(say(&text::rig_not_saved(message.as_str()))),
        })
    };
    let (price, currency) = desk.form.with_untracked(|form| (form.price.clone(), form.currency.clone()));
    view! {
        <form class="alerts__form" on:submit=save novalidate>
            {rules}
            <div class="alerts__price">
                <label for="price">{t(text::RIG_PRICE)}</label>
                <input class="input alerts__number" id="price" inputmode="decimal" autocomplete="off" maxlength="12" disabled=is_closed value=price
                    aria-invalid=some_words(move || price_fault.get().then(|| "true".to_owned())) aria-describedby="price-fault"
                    on:input:target=move |event| desk.form.update(|form| form.price = event.target().value()) />
                <label class="visually-hidden" for="currency">{t(text::RIG_CURRENCY)}</label>
                <input class="input alerts__number" id="currency" autocomplete="off" maxlength="8" placeholder="€" disabled=is_closed value=currency
                    on:input:target=move |event| desk.form.update(|form| form.currency = event.target().value()) />
            </div>
            <p class="rig__fault" id="price-fault">{some_words(move || price_fault.get().then(|| t(text::RIG_PRICE_WRONG).to_owned()))}</p>
            {conflict(desk, try_save)}
            <p class="alerts__buttons">
                <button type="submit" class="button button--primary" id="save" disabled=is_closed>{t(text::RIG_SAVE)}</button>
                <span role="status" data-testid="kept">{some_words(said)}</span>
            </p>
        </form>
    }
}

/// Renders the choice after a conflicting change on another device.
fn conflict(desk: RigContext, save: impl Fn() + Copy + Send + 'static) -> impl IntoView {
    let has_conflict = move || desk.form.with(AlertSettingsForm::has_conflict);
    part_of(has_conflict, move |has_conflict| {
        has_conflict.then(|| {
            let keep = move |_| {
                keep_focus("keep-", "#save");
                desk.form.update(AlertSettingsForm::keep_mine);
                save();
            };
            let take = move |_| {
                keep_focus("take-", "#save");
                desk.form.update(AlertSettingsForm::take_theirs);
                desk.kept.set(SettingsState::Fetched);
            };
            view! {
                <div class="rig__trouble" role="alert" data-testid="conflict">
                    <p>{t(text::RIG_SETTINGS_CONFLICT)}</p>
                    <p class="alerts__buttons">
                        <button type="button" class="button" id="keep-mine" on:click=keep>{t(text::RIG_KEEP_MINE)}</button>
                        <button type="button" class="button" id="take-theirs" on:click=take>{t(text::RIG_TAKE_THEIRS)}</button>
                    </p>
                </div>
            }
        })
    })
}

/// Renders a kind of alert rule: a switch, and the threshold of each rule.
fn kind_of_rule(kind: Kind, form: RwSignal<AlertSettingsForm>, is_closed: bool) -> impl IntoView {
    let (rules, has_room) = form.with_untracked(|form| (form.of(kind), form.has_room()));
    let id = format!("rule-{kind:?}").to_ascii_lowercase();
    let is_on = !rules.is_empty();
    let is_one_of_several = rules.len() > 1;
    let has_number = kind.number().is_some();
    let numbers: Vec<_> = rules
        .into_iter()
        .filter(|_| has_number)
        .enumerate()
        .map(|(at, rule)| {
            // The first rule's id is the same at any position among all rules.
            let id = if at == 0 { format!("{id}-number") } else { format!("{id}-number-{}", rule.id) };
            number(rule, id, form, is_closed, is_one_of_several)
        })
        .collect();
    let add = (is_on && has_number && !is_closed).then(|| {
        view! {
            <button type="button" class="button button--quiet" id=format!("{id}-add") disabled=!has_room
                aria-label=format!("{}: {}", t(text::RIG_RULE_ADD), t(kind.name()))
                on:click=move |_| form.update(|form| form.add(kind))>{t(text::RIG_RULE_ADD)}</button>
        }
    });
    view! {
        <div class="alerts__rule">
            <label class="alerts__name">
                <input type="checkbox" id=id checked=is_on disabled=is_closed
                    on:change:target=move |event| {
                        let is_on = event.target().checked();
                        form.update(|form| form.switch(kind, is_on));
                    } />
                {t(kind.name())}
            </label>
            {numbers}
            {add}
        </div>
    }
}

fn number(rule: Rule, id: String, form: RwSignal<AlertSettingsForm>, is_closed: bool, may_go: bool) -> impl IntoView {
    let kind = rule.kind;
    let (unit, [_, least, most]) = kind.number().unwrap_or_default();
    let remove = (may_go && !is_closed).then(|| {
        view! {
            <button type="button" class="button button--quiet" id=format!("{id}-remove")
                aria-label=format!("{}: {} {} {unit}", t(text::RIG_RULE_REMOVE), t(kind.name()), rule.number)
                on:click=move |_| form.update(|form| form.remove(rule.id))>{t(text::RIG_RULE_REMOVE)}</button>
        }
    });
    view! {
        <span class="alerts__name">
            <input class="input alerts__number" type="number" inputmode="numeric" min=least.to_string() max=most.to_string() id=id
                value=rule.number.to_string() aria-label=t(kind.name()) disabled=is_closed
                on:change:target=move |event| {
                    let typed = event.target().value().trim().parse().ok();
                    let number = form.try_update(|form| form.set(rule.id, typed)).unwrap_or_default();
                    event.target().set_value(&number.to_string());
                } />
            {unit}
            {remove}
        </span>
    }
}

/// The state of this browser's notifications, with a button to change it.
#[component]
fn Browser() -> impl IntoView {
    let state = RwSignal::new(notify_state());
    let press = move |_| {
        if state.get_untracked() == NotificationState::On {
            stop_notifying();
            state.set(notify_state());
        } else {
            spawn_local(async move { state.set(ask_to_notify().await) });
        }
    };
    let words = move || {
        let words = match state.get() {
            NotificationState::On => text::RIG_NOTIFY_ON,
            NotificationState::Denied => text::RIG_NOTIFY_DENIED,
            NotificationState::Never => text::RIG_NOTIFY_INSECURE,
            NotificationState::Off => return None,
        };
        Some(t(words).to_owned())
    };
    let can = move || matches!(state.get(), NotificationState::On | NotificationState::Off);
    let label = move || {
        Some(t(if state.get() == NotificationState::On { text::RIG_NOTIFY_STOP } else { text::RIG_NOTIFY }).to_owned())
    };
    view! {
        <div class="alerts__browser" data-testid="notify">
            {part_of(can, move |can| can.then(|| view! {
                <button type="button" class="button" id="notify" on:click=press>{some_words(label)}</button>
            }))}
            <p class="rig__hint" role="status">{some_words(words)}</p>
        </div>
    }
}
